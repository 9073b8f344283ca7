#!/usr/bin/env bash
# Set up what is missing, and run all the tests, C and Python. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")"
. tools/setup.sh

install_missing test
make_venv examples test
say "C tests"
cmake --preset dev >/dev/null
cmake --build --preset dev -- --quiet
ctest --preset dev --no-tests=error --parallel "$(nproc)"
say "Python tests"
# They wait for clusters more than they compute.
.venv/bin/python -m pytest --numprocesses "$(($(nproc) + 1))" --dist loadfile "$@"
