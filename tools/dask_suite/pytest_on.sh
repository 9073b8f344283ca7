#!/usr/bin/env bash
# Runs tests of Dask's on one plane: stock, or over Spillway.
#
#   pytest_on.sh SUITE stock|spillway PREFIX [PYTEST ARGUMENTS]
#
# SUITE has the environments that tools/dask_suite.sh made. Leaves PREFIX.jsonl, the
# outcome of each test, PREFIX.runs.json, which tests shuffled, PREFIX.log, and over Spillway PREFIX.figures.json and
# PREFIX.processes/, what this process and its children moved. Ends with 0 also when tests
# failed, which is for the report to judge; anything else that ends pytest is not.
set -euo pipefail

suite=$1 plane=$2 prefix=$3
shift 3
tools=$(cd "$(dirname "$0")" && pwd)
python=$suite/venv-$plane/bin/python
# Ends a run that pytest-timeout could not; the longest module takes a quarter of it.
longest=60m

options=()
rm -rf "$prefix".{jsonl,runs.json,log,figures.json,processes}
mkdir -p "$(dirname "$prefix")"
if [ "$plane" = spillway ]; then
    options=(-p over_spillway --figures "$prefix.figures.json")
    mkdir "$prefix.processes"
    export SPILLWAY_STATS_DIR=$prefix.processes
fi
if [ -n "${TEST_LIMIT:-}" ]; then
    options+=(-p unhurried) # after Spillway, since it imports Dask
fi

cd "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
status=0
# shellcheck disable=SC2086  # RUN_UNDER is a list of words
# In the foreground the terminal's Ctrl-C reaches the tests.
PYTHONPATH=$tools ${RUN_UNDER:-} timeout --foreground --kill-after=10 "$longest" \
    "$python" -m pytest -p no:cacheprovider -p record_outcomes "${options[@]}" \
    -p shuffle_runs --runs "$prefix.runs.json" \
    --record "$prefix.jsonl" --expect-distributed "$DISTRIBUTED_VERSION" \
    --runslow --timeout="${TEST_LIMIT:-120}" --timeout-method=signal --color=no \
    -W 'ignore:get_ipv6 is deprecated:FutureWarning' "$@" \
    >"$prefix.log" 2>&1 || status=$?
if [ "$status" -gt 1 ]; then
    tail -n 20 "$prefix.log" >&2
    echo "pytest ended with $status on $plane, see $prefix.log" >&2
    exit 1
fi
