#!/usr/bin/env bash
# Dask's own tests over Spillway, and on stock Dask beside it: a test that passes on stock
# passes on Spillway, unless tools/dask_suite/cannot_hold.toml says which of its
# assertions about Tornado cannot hold.
#
#   tools/dask_suite.sh [--update-docs] [PYTEST ARGUMENTS]
#   tools/dask_suite.sh --large [--update-docs] [MODULES]
#
# Arguments choose other tests, by their paths in Dask's repository. --update-docs puts
# the result into docs/dask_suite.md. --large runs Dask's larger test modules, which take
# an hour, each on both at the same time, and again alone what does not pass
# (tools/dask_suite/run_modules.py).
#
#   DISTRIBUTED_REPOSITORY   a clone of dask/distributed; by default one is made in build/
#   DISTRIBUTED_REVISION     the commit whose tests to take; by default the tag of the
#                            installed version, or else its commit, or else HEAD
#   RUN_UNDER                what to put before each command that runs pytest, as "nice"
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

large=
report_options=()
# Not the units of the inside of Dask's shuffle. They run in each buffer; all else once.
shuffles=(distributed/shuffle/tests/test_{core,graph,merge,merge_column_and_index}.py
    distributed/shuffle/tests/test_{metrics,shuffle,shuffle_plugins}.py)
buffers=()
while :; do
    case ${1:-} in
        --large) large=yes ;;
        --update-docs) report_options+=(--docs docs/dask_suite.md) ;;
        *) break ;;
    esac
    shift
done
if [ $# = 0 ] && [ "$large" ]; then
    report_options+=(--whole)
    # The longest first, so that the two ends are near each other.
    set -- distributed/tests/test_{client,scheduler,worker,nanny,failed_workers}.py \
        distributed/tests/test_{steal,stress,cancelled_state,worker_memory}.py \
        distributed/tests/test_{worker_metrics,active_memory_manager,actor,spans}.py \
        distributed/tests/test_worker_state_machine.py
elif [ $# = 0 ]; then
    report_options+=(--whole)
    buffers=(memory disk)
    set -- distributed/comm/tests distributed/protocol/tests \
        distributed/tests/test_core.py distributed/tests/test_batched.py \
        distributed/tests/test_utils_comm.py "${shuffles[@]}"
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

if [ "$large" ]; then
    exec "$python" tools/dask_suite/run_modules.py "$suite" --tests-from "$tests_from" \
        "${report_options[@]}" "$@"
fi

say "stock: running, with the log in build/dask-suite/stock.log"
tools/dask_suite/pytest_on.sh "$suite" stock "$suite/stock" "$@"
say "spillway: running, with the log in build/dask-suite/spillway.log"
ended_well=true
tools/dask_suite/pytest_on.sh "$suite" spillway "$suite/spillway" "$@" ||
    ended_well=false
rm -f "$suite"/spillway-*.runs.json
for buffer in "${buffers[@]}"; do
    say "spillway: running shuffles in $buffer"
    DASK_SPILLWAY__SHUFFLE__BUFFER=$buffer tools/dask_suite/pytest_on.sh \
        "$suite" spillway "$suite/spillway-$buffer" "${shuffles[@]}" ||
        ended_well=false
done
"$python" tools/dask_suite/report.py "$suite" --tests-from "$tests_from" \
    "${report_options[@]}"
$ended_well
