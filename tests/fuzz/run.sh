#!/bin/sh
# Build the fuzz targets and run each for SECONDS (default 60): run.sh [SECONDS [NAME...]]
# It begins with what earlier runs found, tests/fuzz/found.tar.xz. Inputs that reach new
# code are kept in build/fuzz/corpus, those that fail in build/fuzz/artifacts; copy a
# failing one to tests/fuzz/corpus/<name>/ with its fix.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-60}
[ $# -gt 0 ] && shift
case $seconds in
'' | *[!0-9]*) echo "usage: $0 [SECONDS [NAME...]]" >&2; exit 2 ;;
esac

cmake --preset fuzz
cmake --build --preset fuzz

if [ $# -eq 0 ]; then
    for source in tests/fuzz/fuzz_*.c; do
        name=${source##*/fuzz_}
        set -- "$@" "${name%.c}"
    done
fi
if [ ! -d build/fuzz/corpus ]; then
    mkdir -p build/fuzz/corpus
    tar -xJf tests/fuzz/found.tar.xz -C build/fuzz/corpus
fi
for name in "$@"; do
    found=build/fuzz/corpus/$name
    artifacts=build/fuzz/artifacts/$name
    mkdir -p "$found" "$artifacts"
    echo "== $name: $seconds s"
    "build/fuzz/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 \
        -max_len=65536 -print_final_stats=1 -artifact_prefix="$artifacts/" \
        "$found" "tests/fuzz/corpus/$name"
done
