#!/usr/bin/env bash
# Prove run.sh and test.sh on a machine that has nothing: a chroot of a minimal Debian
# or Ubuntu, with git's checkout in it.
#
#   tools/fresh_machine.sh bookworm|trixie|noble DIRECTORY      (as root, debootstrap)
#
# The second run of both is without a network. What pip and apt need to reach their
# indexes from here (PIP_*, *_proxy, a file of CA certificates) is taken along.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=$1
root=$2
home=/root/spillway

case $suite in
    noble) mirror=http://archive.ubuntu.com/ubuntu components=main,universe ;;
    *) mirror=http://deb.debian.org/debian components=main ;;
esac
if [ ! -e "$root/etc/os-release" ]; then
    debootstrap --variant=minbase --components="$components" "$suite" "$root" "$mirror"
fi
cp /etc/resolv.conf "$root/etc/resolv.conf"
# An installer writes these; debootstrap does not.
printf '127.0.0.1 localhost\n::1 localhost ip6-localhost\n' >"$root/etc/hosts"
if [ -n "${PIP_CERT:-}" ]; then
    # Not in its place here: there apt may put Debian's own.
    install -m 644 "$PIP_CERT" "$root/root/pip_cert.crt"
    export PIP_CERT=/root/pip_cert.crt
fi
rm -rf "${root:?}$home"
git archive --format=tar --prefix="${home#/}/" HEAD | tar -x -C "$root"

mounted=()
cleanup() {
    # Lazily: a process of the tests may take a moment to end.
    for folder in "${mounted[@]}"; do umount --lazy "$root/$folder"; done
}
trap cleanup EXIT
for folder in proc dev; do
    mount --bind "/$folder" "$root/$folder"
    mounted=("$folder" "${mounted[@]}")
done

# in_chroot COMMAND...: with the environment of a login, and nothing of this one but
# what reaches the package indexes.
in_chroot() {
    local -a keep=()
    mapfile -t keep < <(env | grep -E '^(PIP_CERT|PIP_INDEX_URL|PIP_DEFAULT_TIMEOUT|[a-z]+_proxy)=')
    env -i HOME=/root LANG=C.UTF-8 "${keep[@]}" \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        "${wrap[@]}" chroot "$root" /bin/sh -c "cd $home && $1"
}

wrap=()
in_chroot ./run.sh
in_chroot ./test.sh
echo "== $suite: again, without a network"
# A network namespace with nothing but the loopback device.
wrap=(unshare --net sh -c 'ip link set lo up && exec "$@"' -)
in_chroot ./run.sh
in_chroot ./test.sh
echo "== $suite: run.sh and test.sh passed twice"
