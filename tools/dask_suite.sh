#!/usr/bin/env bash
# Dask's own tests over Spillway, and on stock Dask beside it: a test that passes on stock
# passes on Spillway, unless tools/dask_suite/cannot_hold.toml says which of its
# assertions about Tornado cannot hold.
#
#   tools/dask_suite.sh [--update-docs] [PYTEST ARGUMENTS]
#   tools/dask_suite.sh --shuffles [--continue] [--update-docs] [PYTEST ARGUMENTS]
#   tools/dask_suite.sh --large [--update-docs] [MODULES]
#
# Arguments choose other tests, by their paths in Dask's repository. --update-docs puts
# the result into docs/dask_suite.md. --shuffles runs the tests of Dask's P2P shuffle, and
# those of its DataFrames that shuffle (tools/dask_suite/dataframe_shuffles.py), on stock
# and with each buffer of Spillway's, module by module. With --continue it leaves out the
# modules that earlier runs have ended, and tests that are named replace what is known
# of them. --large runs Dask's larger test modules, which take an hour, each on both at
# the same time, and again alone what does not pass (tools/dask_suite/run_modules.py).
#
#   DISTRIBUTED_REPOSITORY   a clone of dask/distributed; by default one is made in build/
#   DISTRIBUTED_REVISION     the commit whose tests to take; by default the tag of the
#                            installed version, or else its commit, or else HEAD
#   RUN_UNDER                what to put before each command that runs pytest, as "nice"
#   TEST_LIMIT               on a busy machine, the seconds that a test may take; else it
#                            has 120, or what Dask gives it, mostly 30
#
# Everything is in build/dask-suite: two environments that differ in Spillway alone, over
# whose Dask the tests are laid, the outcome of each test, the logs, result.md. Only the
# first run needs the network.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=$PWD/build/dask-suite
python=$suite/venv-spillway/bin/python
upstream=https://github.com/dask/distributed.git
version=$(sed -n 's/^distributed==//p' constraints/newest.txt)
export DISTRIBUTED_VERSION=$version

suite_of=comms
continues=false
is_whole=false
report_options=()
while :; do
    case ${1:-} in
        --large | --shuffles) suite_of=${1#--} ;;
        --continue) continues=true ;;
        --update-docs) report_options+=(--docs docs/dask_suite.md) ;;
        *) break ;;
    esac
    shift
done
if [ $# = 0 ]; then
    is_whole=true
    report_options+=(--whole)
    case $suite_of in
        comms)
            set -- distributed/comm/tests distributed/protocol/tests \
                distributed/tests/test_{core,batched,utils_comm}.py
            ;;
        shuffles)
            # Not the units of the inside of Dask's shuffle.
            set -- distributed/shuffle/tests/test_{core,graph,merge,metrics,shuffle}.py \
                distributed/shuffle/tests/test_{merge_column_and_index,shuffle_plugins}.py \
                dask/dataframe/dask_expr/tests/test_{distributed,shuffle,merge,concat}.py \
                dask/dataframe/dask_expr/tests/test_{groupby,partitioning_knowledge}.py \
                dask/dataframe/dask_expr/tests/test_{reductions,collection}.py \
                dask/dataframe/tests/test_{shuffle,multi,merge_column_and_index}.py \
                dask/dataframe/tests/test_{groupby,dataframe,categorical}.py
            ;;
        large)
            # The longest first, so that the two ends are near each other.
            set -- distributed/tests/test_{client,scheduler,worker,nanny}.py \
                distributed/tests/test_{failed_workers,steal,stress,cancelled_state}.py \
                distributed/tests/test_{worker_memory,worker_metrics,actor,spans}.py \
                distributed/tests/test_{active_memory_manager,worker_state_machine}.py
            ;;
    esac
fi

say() {
    printf '== %s\n' "$*"
}

# pip_install PLANE [ARGUMENTS OF PIP]
pip_install() {
    "$suite/venv-$1/bin/python" -m pip install --quiet --disable-pip-version-check \
        --constraint constraints/newest.txt "${@:2}"
}

make_venv() {
    local plane=$1 wanted
    wanted=$(cat constraints/newest.txt tools/dask_suite/requirements.txt | sha256sum)
    if [ "$(cat "$suite/venv-$plane/made" 2>/dev/null)" != "$wanted" ]; then
        say "$plane: making an environment with distributed $version"
        "${PYTHON:-python3}" -m venv --clear "$suite/venv-$plane"
        # Packages that come as sources are built with these two.
        pip_install "$plane" setuptools wheel
        pip_install "$plane" --requirement tools/dask_suite/requirements.txt
        echo "$wanted" >"$suite/venv-$plane/made"
    fi
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
    for plane in stock spillway; do
        say "$plane: laying over it the tests of $tests_from"
        site=$("$suite/venv-$plane/bin/python" -c \
            'import sysconfig; print(sysconfig.get_path("purelib"))')
        find "$site/distributed" -name tests -type d -prune -exec rm -r {} +
        git -C "$repository" archive "$revision" -- \
            conftest.py pyproject.toml ':(glob)distributed/**/tests/**' |
            tar -x -C "$site"
    done
}

for name in ${!DASK_*} ${!SPILLWAY_*}; do
    unset "$name"
done
mkdir -p "$suite"
make_venv stock
make_venv spillway
say "spillway: building Spillway"
pip_install spillway --no-build-isolation --no-deps .
lay_tests_over

run_comms() {
    say "stock: running, with the log in build/dask-suite/stock.log"
    tools/dask_suite/pytest_on.sh "$suite" stock "$suite/stock" "$@"
    say "spillway: running, with the log in build/dask-suite/spillway.log"
    local ended_well=true
    tools/dask_suite/pytest_on.sh "$suite" spillway "$suite/spillway" "$@" ||
        ended_well=false
    "$python" tools/dask_suite/report.py "$suite" --tests-from "$tests_from" \
        "${report_options[@]}"
    $ended_well
}

# pytest_of_shuffles stock|spillway PREFIX [PYTEST ARGUMENTS]
pytest_of_shuffles() {
    # Many of the tests use tmpdir, which the configuration of distributed's leaves out.
    tools/dask_suite/pytest_on.sh "$suite" "$1" "$2" \
        -W 'ignore:Module already imported' -p legacypath -p dataframe_shuffles "${@:3}"
}

# find_shuffling NAME [PYTEST ARGUMENTS]: which tests of DataFrames shuffle
find_shuffling() {
    local found=$of_shuffles/found/$1
    [ ! -e "$found.ended" ] || return 0
    say "stock: finding what shuffles, with the log in ${found#"$PWD/"}.log"
    pytest_of_shuffles stock "$found" --find "$found.json" "${@:2}" &&
        touch "$found.ended"
}

# run_piece NAME stock|BUFFER [PYTEST ARGUMENTS]
run_piece() {
    local prefix=$of_shuffles/$2/$1 plane=stock only=()
    [ ! -e "$prefix.ended" ] || return 0
    if [[ "${*:3}" == *dask/dataframe* ]]; then
        find_shuffling "$1" "${@:3}" || return
        only=(--only "$of_shuffles/found/$1.json")
        # For pytest it is no good end when there is nothing to run.
        [ "$(cat "${only[1]}")" != '[]' ] || return 0
    fi
    if [ "$2" != stock ]; then
        plane=spillway
        local -x DASK_SPILLWAY__SHUFFLE__BUFFER=$2
    fi
    say "$2: running, with the log in ${prefix#"$PWD/"}.log"
    # On a busy machine some fail now and then, on both planes; the result has which.
    pytest_of_shuffles "$plane" "$prefix" --reruns 2 --rerun-except 'Timeout \(>' \
        "${only[@]}" "${@:3}" && touch "$prefix.ended"
}

run_shuffles() {
    local of_shuffles=$suite/shuffles ended_well=true plane module named
    named=named-$(date +%s)
    $continues || rm -rf "$of_shuffles"
    for plane in stock auto memory disk; do
        if ! $is_whole; then
            run_piece "$named" "$plane" "$@" || ended_well=false
            continue
        fi
        for module in "$@"; do
            run_piece "${module%.py}" "$plane" "$module" || ended_well=false
        done
    done
    "$python" tools/dask_suite/shuffle_report.py "$of_shuffles" \
        --tests-from "$tests_from" "${report_options[@]}"
    $ended_well
}

run_large() {
    "$python" tools/dask_suite/run_modules.py "$suite" --tests-from "$tests_from" \
        "${report_options[@]}" "$@"
}

"run_$suite_of" "$@"
