# What run.sh and test.sh share; sourced, from the root of the checkout.
#
#   install_missing WHAT...  what the system lacks, by apt: "run", "test"
#   make_venv EXTRA...       .venv with the pinned packages and Spillway built from here,
#                            with these extras of pyproject.toml
#
# Both do nothing the second time, without asking the network.

python=${PYTHON:-python3}

say() {
    printf '== %s\n' "$*"
}

# package <tab> a command that succeeds when it is there
needs_run() {
    cat <<'END'
gcc	command -v gcc
libc6-dev	has_header stdio.h
pkg-config	command -v pkg-config
python3	"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'
python3-venv	"$python" -c 'import ensurepip, venv'
python3-dev	has_python_header
liblz4-dev	pkg-config --exists liblz4
libzstd-dev	pkg-config --exists libzstd
zlib1g-dev	pkg-config --exists zlib
libsnappy-dev	has_header snappy-c.h
libxxhash-dev	has_header xxhash.h
END
}

needs_test() {
    needs_run
    printf 'libcmocka-dev\tpkg-config --exists cmocka\n'
}

has_header() {
    printf '#include <%s>\n' "$1" | gcc -E -x c -
}

has_python_header() {
    "$python" -c 'import os, sysconfig, sys
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}

missing_packages() {
    local package probe
    "needs_$1" | while IFS=$'\t' read -r package probe; do
        eval "$probe" </dev/null >/dev/null 2>&1 || printf '%s\n' "$package"
    done
}

install_missing() {
    local packages system=other as_root=
    packages=$(missing_packages "$1" | xargs)
    [ -n "$packages" ] || return 0
    [ ! -r /etc/os-release ] || system=$(. /etc/os-release && echo "${ID:-other}")
    case $system in
        debian | ubuntu) ;;
        *)
            echo "This system lacks what these packages of Debian's hold: $packages" >&2
            echo "Install the like of them, and run this again." >&2
            return 1
            ;;
    esac
    [ "$(id -u)" = 0 ] || as_root=sudo
    say "installing by apt: $packages"
    $as_root apt-get update -qq
    # shellcheck disable=SC2086  # a list of words
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $packages >/dev/null
    packages=$(missing_packages "$1" | xargs)
    if [ -n "$packages" ]; then
        echo "Still missing after apt-get install, for $python: $packages" >&2
        echo "PYTHON=/usr/bin/python3 chooses the system's Python." >&2
        return 1
    fi
}

# A line that changes when what we would install does.
fingerprint() {
    {
        version_of "$python"
        find CMakeLists.txt cmake pyproject.toml README.md LICENSE include src python/native \
            python/spillway constraints/newest.txt tools/setup.sh -type f \
            ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    } | sha256sum
}

version_of() {
    "$1" -c 'import sys; print(sys.version)' 2>/dev/null || echo none
}

# Whether the extras named after it were installed from what is here now.
is_made() {
    local now=$1 extra
    shift
    for extra; do
        [ "$(cat ".venv/made-$extra" 2>/dev/null)" = "$now" ] || return 1
    done
}

make_venv() {
    local now extra extras
    now=$(fingerprint)
    if ! is_made "$now" "$@"; then
        if [ "$(version_of .venv/bin/python)" != "$(version_of "$python")" ]; then
            say "making .venv"
            "$python" -m venv --clear .venv
        fi
        extras=$(IFS=, && echo "$*")
        say "building Spillway into .venv, with $extras"
        for extra; do rm -f ".venv/made-$extra"; done
        # The tools of the build stay, so that building again needs no network.
        # setuptools and wheel are for the packages that come as sources.
        pip_install setuptools wheel scikit-build-core cmake ninja
        pip_install --no-build-isolation ".[$extras]"
        for extra; do echo "$now" >".venv/made-$extra"; done
    fi
    export PATH="$PWD/.venv/bin:$PATH"
}

pip_install() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check \
        --constraint constraints/newest.txt "$@"
}
