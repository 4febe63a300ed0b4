#!/usr/bin/env bash
# Installs what outcast needs on Debian or Ubuntu: system packages, a running Open vSwitch, and a
# .venv with every Python package at the version of the lock files. It can be run again, and then
# leaves alone what is already there. Only packages and Open vSwitch need root.
# Where wheels/ has outcast-guest, the virtual engine's kernel and root come from it, and nothing is built.
# Usage: scripts/install.sh [--virtual]
#   --virtual  only what the virtual engine needs: Python. Its guest has programs of its own
set -euo pipefail

# The caller's locale must not decide what is installed, and pip has to write paths in UTF-8.
export LC_ALL=C.UTF-8

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
stamp=$venv/.outcast-installed
# Debian's mininet, for real time, is a package of the distribution's own Python alone.
python=/usr/bin/python3

shopt -s nullglob
guest=("$root"/wheels/outcast_guest-*.whl)
shopt -u nullglob

packages=(python3 python3-venv)
of_realtime=(
    mininet openvswitch-switch                              # the network
    iperf iperf3 iputils-ping                               # its traffic
    iproute2 ethtool tcpdump                                # its settings and its captures
    gcc libc6-dev make                                      # programs and modules in C
    chromium curl nginx-light tshark nftables               # the tests: report, web page, exports, a NAT
)
virtual=false
case "$#:${1:-}" in
    0:) packages+=("${of_realtime[@]}") ;;
    1:--virtual) virtual=true ;;
    *) sed -n 's/^# Usage: /usage: /p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac

# quietly shows a command's output only if it fails, but a wait should show at once.
exec 3>&1

say() { printf 'install: %s\n' "$*"; }
die() { printf 'install: error: %s\n' "$*" >&2; exit 1; }

# Python is started with -I, so that neither the working folder nor PYTHON* variables decide what it
# runs.

# Shows a command's output only if it fails.
quietly() {
    local output status
    output=$("$@" 2>&1) && return
    status=$?
    printf '%s\n' "$output" >&2
    die "status $status of: $*"
}

can_become_root() { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "root is needed for: $* (run this script as root)"
    fi
}

# Runs a command as the checkout's owner, so that under sudo new files belong to that user.
as_owner() {
    local owner
    owner=$(stat -c %U "$root")
    if [ "$(id -u)" -eq 0 ] && [ "$owner" != root ] && id "$owner" >/dev/null 2>&1; then
        runuser -u "$owner" -- env HOME="$(getent passwd "$owner" | cut -d: -f6)" "$@"
    else
        "$@"
    fi
}

# A machine that has just started may be installing updates of its own. apt-get waits for dpkg's lock
# alone, and fails at once where another holds that of the lists or of the archives.
apt_get() {
    local output status until=$((SECONDS + 300)) said=false
    while :; do
        output=$(as_root env DEBIAN_FRONTEND=noninteractive apt-get \
            -o DPkg::Lock::Timeout=$((until > SECONDS ? until - SECONDS : 1)) "$@" 2>&1) && return
        status=$?
        [[ $output == *"Could not get lock"* ]] && [ "$SECONDS" -lt "$until" ] || break
        $said || say "another apt is at work; waiting for it up to five minutes" >&3
        said=true
        sleep 10
    done
    printf '%s\n' "$output"
    return "$status"
}

install_packages() {
    local missing=() package
    for package in "${packages[@]}"; do
        dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed \
            || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        say "system packages: all ${#packages[@]} are there"
        return
    fi
    can_become_root || die "only root can install the Debian packages that are missing:" \
        "${missing[*]}$($virtual || echo '; with --virtual, python3 and python3-venv are enough')"
    say "system packages: installing ${missing[*]}"
    quietly apt_get update
    without_services quietly apt_get install -y --no-install-recommends "${missing[@]}"
    if [[ " ${missing[*]} " == *" nginx-light "* && -d /run/systemd/system ]]; then
        quietly as_root systemctl disable nginx
    fi
}

# Runs a command while no package can start a service (policy-rc.d(8)). Of nginx the tests need the
# program, and nobody requested a web server.
without_services() {
    local policy=/usr/sbin/policy-rc.d status=0
    if [ -e "$policy" ]; then
        "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
    ("$@") || status=$?
    as_root rm -f "$policy"
    [ "$status" -eq 0 ] || exit "$status"
}

open_vswitch_runs() { as_root ovs-vsctl --timeout=3 show >/dev/null 2>&1; }

start_open_vswitch() {
    if ! can_become_root; then
        die "Open vSwitch needs root: run this as root, or with --virtual, which starts no service"
    fi
    if open_vswitch_runs; then
        say "Open vSwitch: running"
        return
    fi
    say "Open vSwitch: starting"
    if [ -d /run/systemd/system ]; then
        quietly as_root systemctl start openvswitch-switch
    else
        # Daemons keep open files, so a reader of this script's output would wait for them.
        quietly as_root /usr/share/openvswitch/scripts/ovs-ctl --system-id=random start 3>&-
    fi
    open_vswitch_runs || die "Open vSwitch did not start; see /var/log/openvswitch"
}

# Identifies what the .venv is made from. The path is part of it, because a virtual environment cannot
# be moved.
fingerprint() {
    { printf '%s\n' "$root"; "$python" -VV; cat "$root"/scripts/requirements*.lock \
        "$root/pyproject.toml" "$root/setup.py"
        [ ${#guest[@]} -eq 0 ] || sha256sum "${guest[@]}"; } | sha256sum
}

pip_install() {
    as_owner "$venv/bin/python" -I -m pip install --quiet --disable-pip-version-check \
        --no-input --no-deps "$@"
}

make_venv() {
    local wanted
    wanted=$(fingerprint)
    if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        say "Python packages: as locked"
        return
    fi
    if ! grep -qsxF -e "VIRTUAL_ENV=$venv" -e "VIRTUAL_ENV='$venv'" -e "VIRTUAL_ENV=\"$venv\"" \
        "$venv/bin/activate"; then
        say "Python packages: making .venv from $("$python" -V)"
        as_owner "$python" -I -m venv --clear --system-site-packages "$venv"
    fi
    say "Python packages: installing $(grep -hoE '^[A-Za-z0-9._-]+==' "$root"/scripts/requirements*.lock \
        | sort -u | wc -l) at their locked versions; one to four minutes"
    # First Ryu, because it needs an old setuptools to build, which the others' replaces.
    pip_install --require-hashes -r "$root/scripts/requirements-ryu-build.lock"
    pip_install --require-hashes --no-build-isolation --use-pep517 \
        -r "$root/scripts/requirements-ryu.lock"
    pip_install --require-hashes -r "$root/scripts/requirements.lock"
    # Not by its path, because pip takes [1] at the end of one for the names of extras.
    (cd "$root" && pip_install --no-build-isolation --editable .)
    if [ ${#guest[@]} -gt 0 ]; then
        say "the virtual engine's guest: ${guest[*]#"$root/"}"
        pip_install "${guest[@]}"
    fi
    link_checkout
    printf '%s\n' "$wanted" | as_owner tee "$stamp" >/dev/null
}

# pip's link to the checkout comes after the folders of Python's path: beside a folder that is called
# outcast, or configs, a notebook would import that one. A folder of the path that has the packages
# does not. Relative to the .venv, because Python cannot read a path that is not ASCII in every locale.
link_checkout() {
    local packages
    packages=$(as_owner "$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    realpath --relative-to="$packages" "$root" \
        | as_owner tee "$packages"/__editable__.outcast_testbed-*.pth >/dev/null
}

# Compiles the loops over packets beside the modules. Otherwise the first analysis would do it.
compile_analysis() {
    as_owner "$venv/bin/python" -I "$root/scripts/warm.py"
    as_owner "$venv/bin/python" -I -m compileall -q "$root"/{outcast,controllers,topologies}
    say "analysis: compiled"
}

# Writes the manual page to where man(1) looks for it if .venv/bin is in PATH.
write_manual() {
    as_owner "$venv/bin/python" -I "$root/scripts/manual.py" "$venv/share/man/man1/outcast.1"
    say "manual: man -M $venv/share/man outcast"
}

[ -r /etc/debian_version ] || die "only Debian and Ubuntu are known to this script"
install_packages
$virtual || start_open_vswitch
make_venv
compile_analysis
write_manual
say "done: $venv/bin/outcast"
