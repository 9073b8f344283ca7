"""What a script answers, found in its standard output while that passes by."""

import hashlib

MARK = b"digest:"
LONGEST_LINE = 64 << 10
"""A line that is longer counts as no digest line, so that no line has to be kept."""
KEPT_BYTES = 64 << 10


class Answer:
    """The last line that begins with ``digest:``; without such a line, all of it."""

    def __init__(self) -> None:
        self.digest: bytes | None = None
        self.beginning = b""
        self._all = hashlib.sha256()
        self._line = bytearray()
        self._line_is_too_long = False

    def feed(self, output: bytes) -> None:
        """Take the next piece of the output."""
        self._all.update(output)
        self.beginning += output[: KEPT_BYTES - len(self.beginning)]
        *ended, rest = output.split(b"\n")
        for end in ended:
            self._add(end)
            self.end()
        self._add(rest)

    def end(self) -> None:
        """The line ends, and so may the output."""
        if self._line.startswith(MARK) and not self._line_is_too_long:
            self.digest = bytes(self._line).rstrip()
        self._line.clear()
        self._line_is_too_long = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compare."""
        return not self.beginning

    def difference(self, other: "Answer") -> str | None:
        """How this answer and another one differ, None when they are the same."""
        if (self.digest is None) != (other.digest is None):
            return "one printed a line that begins with 'digest:', the other did not"
        if self.digest is not None and other.digest is not None:
            if self.digest == other.digest:
                return None
            return f"{_shown(self.digest)} and {_shown(other.digest)}"
        if self._all.digest() == other._all.digest():
            return None
        ours, theirs = _first_difference(self.beginning, other.beginning)
        return (
            f"all of the standard output is compared, and in it {ours} and {theirs}; "
            "a script whose output is not the same each time prints a line 'digest: "
            "...' of its answer, which is compared alone"
        )

    def _add(self, part: bytes) -> None:
        room = LONGEST_LINE - len(self._line)
        self._line += part[:room]
        self._line_is_too_long |= len(part) > room


def _first_difference(one: bytes, other: bytes) -> tuple[str, str]:
    lines, others = one.splitlines(), other.splitlines()
    for line, against in zip(lines, others, strict=False):
        if line != against:
            return _shown(line), _shown(against)
    if len(lines) != len(others):
        return f"{len(lines)} lines", f"{len(others)} lines"
    return "something", "something else behind its beginning"


def _shown(line: bytes) -> str:
    text = line.decode(errors="replace")
    return repr(text if len(text) <= 120 else text[:117] + "...")
