"""`python -m spillway` is the command `spillway`."""

from spillway.cli import main

if __name__ == "__main__":
    main(prog_name="spillway")
