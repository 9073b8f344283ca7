#!/usr/bin/env bash
# The Python tests on the oldest Dask that we support and on the newest: one wheel, and
# an environment of its own under build/ for each file of pins in constraints/.
#
#   tools/compat.sh [oldest|newest]...     both by default; PYTHON chooses the interpreter
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
[ $# -gt 0 ] || set -- oldest newest
for name; do
    [ -f "constraints/$name.txt" ] || {
        echo "There is no constraints/$name.txt" >&2
        exit 2
    }
done

rm -rf build/compat-wheel
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps \
    --wheel-dir build/compat-wheel .
wheel=$(echo build/compat-wheel/spillway-*.whl)

failed=()
for name; do
    venv=build/compat-$name
    echo "== $name: $(grep ^distributed== "constraints/$name.txt")"
    "$python" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --constraint "constraints/$name.txt" "$wheel[examples,test]"
    "$venv/bin/python" -m pytest -q -p no:cacheprovider || failed+=("$name")
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "The tests fail on: ${failed[*]}" >&2
    exit 1
fi
