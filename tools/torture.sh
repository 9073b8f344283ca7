#!/usr/bin/env bash
# Every suite of scenarios again, with each allocation and each socket call failing in
# turn, under AddressSanitizer and UBSan. Prints how far each suite went.
set -euo pipefail
cd "$(dirname "$0")/.."

cmake --preset asan >/dev/null
cmake --build --preset asan -- --quiet
log=build/asan/torture.log
if ! ctest --preset asan -L torture --no-tests=error --verbose >"$log" 2>&1; then
    cat "$log"
    exit 1
fi
grep -o 'torture: .*' "$log"
