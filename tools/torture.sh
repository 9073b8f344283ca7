#!/usr/bin/env bash
# Every suite of scenarios again, with each allocation and each socket call failing in
# turn, under AddressSanitizer and UBSan. Prints how far each suite went. Then storms:
# STORM_SECONDS (60) under each sanitizer.
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

# Then random actions on connections whose directions are with threads, with another
# seed each time, under each sanitizer that sees what the other does not.
seconds=${STORM_SECONDS:-60}
cmake --preset tsan >/dev/null
cmake --build --preset tsan -- --quiet
build/asan/tests/storm "$seconds"
TSAN_OPTIONS=halt_on_error=1 build/tsan/tests/storm "$seconds"
