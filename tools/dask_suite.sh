#!/usr/bin/env bash
# Dask's own tests over Spillway, and on stock Dask beside it: a test that passes on stock
# passes on Spillway, unless tools/dask_suite/cannot_hold.toml says which of its
# assertions about Tornado cannot hold.
#
#   tools/dask_suite.sh [--update-docs] [PYTEST ARGUMENTS]
#
# Arguments choose other tests, by their paths in Dask's repository. --update-docs puts
# the result into docs/dask_suite.md.
#
#   DISTRIBUTED_REPOSITORY   a clone of dask/distributed; by default one is made in build/
#   DISTRIBUTED_REVISION     the commit whose tests to take; by default the tag of the
#                            installed version, or else its commit, or else HEAD
#
# Everything is in build/dask-suite: the environment over whose Dask the tests are laid,
# the outcome of each test, the logs, result.md. Only the first run needs the network.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
suite=$root/build/dask-suite
python=$suite/venv/bin/python
upstream=https://github.com/dask/distributed.git
version=$(sed -n 's/^distributed==//p' constraints/newest.txt)
# Ends a run that pytest-timeout could not; the tests take three minutes.
longest=30m

report_options=()
if [ "${1:-}" = --update-docs ]; then
    report_options=(--docs docs/dask_suite.md)
    shift
fi
if [ $# = 0 ]; then
    report_options+=(--whole)
    set -- distributed/comm/tests distributed/protocol/tests \
        distributed/tests/test_core.py distributed/tests/test_batched.py \
        distributed/tests/test_utils_comm.py
fi

say() {
    printf '== %s\n' "$*"
}

pip_install() {
    "$python" -m pip install --quiet --disable-pip-version-check \
        --constraint constraints/newest.txt "$@"
}

make_venv() {
    local wanted
    wanted=$(cat constraints/newest.txt tools/dask_suite/requirements.txt | sha256sum)
    if [ "$(cat "$suite/venv/made" 2>/dev/null)" != "$wanted" ]; then
        say "making an environment with distributed $version"
        "${PYTHON:-python3}" -m venv --clear "$suite/venv"
        # Packages that come as sources are built with these two.
        pip_install setuptools wheel
        pip_install --requirement tools/dask_suite/requirements.txt
        echo "$wanted" >"$suite/venv/made"
    fi
    say "building Spillway into it"
    pip_install --no-build-isolation --no-deps .
}

find_revision() {
    local git_hash candidate
    git_hash=$("$python" -c 'from distributed._version import __commit_id__ as found
print((found or "").removeprefix("g"))')
    # shellcheck disable=SC2086  # an empty one is no candidate
    for candidate in ${DISTRIBUTED_REVISION:-"refs/tags/$version" $git_hash HEAD}; do
        git -C "$repository" rev-parse --verify --quiet "$candidate^{commit}" && return
    done
    echo "$repository does not have ${DISTRIBUTED_REVISION:-a commit}" >&2
    return 1
}

lay_tests_over() {
    # By version: a clone made for an older one would lack the tag.
    repository=${DISTRIBUTED_REPOSITORY:-$suite/distributed-$version.git}
    if [ ! -e "$repository" ] && [ -z "${DISTRIBUTED_REPOSITORY:-}" ]; then
        say "cloning $upstream"
        git clone --quiet --bare "$upstream" "$repository"
    fi
    revision=$(find_revision)
    tests_from=$(git -C "$repository" describe --tags --always "$revision")
    tests_from+=$(git -C "$repository" log -1 --format=' of %cs' "$revision")
    say "laying over it the tests of $tests_from"
    site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    find "$site/distributed" -name tests -type d -prune -exec rm -r {} +
    git -C "$repository" archive "$revision" -- \
        conftest.py pyproject.toml ':(glob)distributed/**/tests/**' | tar -x -C "$site"
}

# run NAME [PYTEST ARGUMENTS]: leaves NAME.jsonl and NAME.log. A failed test is for the
# report to judge, anything else that ends pytest is not.
run() {
    local name=$1 status=0
    shift
    say "$name: running, with the log in ${suite#"$root"/}/$name.log"
    (
        cd "$site"
        PYTHONPATH=$root/tools/dask_suite timeout --kill-after=10 "$longest" \
            "$python" -m pytest -p no:cacheprovider -p record_outcomes \
            --record "$suite/$name.jsonl" --expect-distributed "$version" \
            --runslow --timeout=120 --timeout-method=signal --color=no \
            -W 'ignore:get_ipv6 is deprecated:FutureWarning' "$@"
    ) >"$suite/$name.log" 2>&1 || status=$?
    if [ "$status" -gt 1 ]; then
        tail -n 20 "$suite/$name.log" >&2
        echo "pytest ended with $status on $name" >&2
        return 1
    fi
}

for name in ${!DASK_*} ${!SPILLWAY_*}; do
    unset "$name"
done
mkdir -p "$suite"
rm -rf "$suite"/*.jsonl "$suite/processes" "$suite/figures.json"
mkdir "$suite/processes"
make_venv
lay_tests_over

run stock "$@"
ended_well=true
SPILLWAY_STATS_DIR=$suite/processes \
    run spillway -p over_spillway --figures "$suite/figures.json" "$@" ||
    ended_well=false
"$python" tools/dask_suite/report.py "$suite" --tests-from "$tests_from" \
    "${report_options[@]}"
$ended_well
