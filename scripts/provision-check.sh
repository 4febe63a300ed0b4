#!/usr/bin/env bash
# Tries the provisioning on a fresh Debian of this machine's own release, made with debootstrap from
# the mirror of this machine's apt sources: the Vagrantfile's provisioning, then the Containerfile
# step by step, each in a root of its own. In each, a user without any rights runs an experiment on
# the virtual engine. Takes some twenty minutes and 8 GB; not part of scripts/test.sh.
# It is a chroot with process and mount namespaces, neither a hypervisor nor a container engine:
# boxes, images, shared folders and port forwarding are not tried.
# Usage, as root: scripts/provision-check.sh [--kernels FOLDER] [--keep FOLDER] [vagrant|container]...
#   --kernels FOLDER  lend it this cache of kernels (~/.cache/outcast/kernels) instead of building one
#   --keep FOLDER     work there, keep the roots and use a base root again that is there
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
kernels="" work="" parts=() shm_size=2g
experiment=(run configs/fig3c.yaml --engine virtual --set duration=100ms
    --set 'analysis.windows=[100ms]')

say() { printf 'provision-check: %s (%s s)\n' "$*" "$SECONDS"; }
die() { printf 'provision-check: error: %s\n' "$*" >&2; exit 1; }

while [ $# -gt 0 ]; do
    case $1 in
        --kernels) kernels=$(realpath "$2") && shift 2 ;;
        --keep) work=$(realpath "$2") && shift 2 ;;
        vagrant | container) parts+=("$1") && shift ;;
        *) sed -n 's/^# Usage, as root: /usage: /p' "$0" >&2; exit 2 ;;
    esac
done
[ ${#parts[@]} -gt 0 ] || parts=(vagrant container)
[ "$(id -u)" -eq 0 ] || die "root is needed for debootstrap and chroot"
for program in debootstrap unshare setpriv tar git; do
    command -v "$program" >/dev/null || die "$program is missing: apt-get install $program"
done
# The fresh root's Open vSwitch would take the ports of this machine's for left-overs.
[ ! -e /sys/module/openvswitch ] || die "the openvswitch module is loaded: try another machine"

if [ -z "$work" ]; then
    work=$(mktemp -d /var/tmp/outcast-provision.XXXXXX)
    trap 'rm -rf --one-file-system "$work"' EXIT
fi
mkdir -p "$work/packages"
base=$work/base

make_base() {
    local codename mirror
    codename=$(. /etc/os-release && printf %s "$VERSION_CODENAME")
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(RELEASE) $(COMPONENT) $(REPO_URI)' \
        'Created-By: Packages' | awk -v suite="$codename" \
        '$1 == "Debian" && $2 == suite && $3 == "main" { print $4; exit }')
    [ -n "$mirror" ] || die "this machine's apt sources name no mirror of Debian's $codename"
    rm -rf --one-file-system "$base"
    debootstrap --variant=minbase --cache-dir="$work/packages" "$codename" "$base.new" "$mirror" \
        >"$work/debootstrap.log" 2>&1 || { tail -5 "$work/debootstrap.log" >&2; die "debootstrap failed"; }
    mv "$base.new" "$base"
    say "a fresh Debian $codename: $(du -sm "$base" | cut -f1) MB"
}

# How this machine reaches registries (resolver, certificates, pip's settings) goes for the root too.
inherit_access() {
    local root=$1 file
    for file in /etc/resolv.conf /etc/hosts /etc/pip.conf "${PIP_CERT:-}" "${SSL_CERT_FILE:-}"; do
        if [ -f "$file" ]; then
            install -D -m 644 "$file" "$root$file"
        fi
    done
    for file in /usr/local/share/ca-certificates "${PIP_FIND_LINKS:-}"; do
        if [ -d "$file" ]; then
            mkdir -p "$root$file" && cp -r "$file/." "$root$file"
        fi
    done
    env | grep -E '^(PIP_[A-Z_]+|SSL_CERT_FILE|[a-z]+_proxy|[A-Z]+_PROXY)=' >"$root/etc/environment" || true
}

fresh_root() {
    rm -rf --one-file-system "$1"
    cp -a "$base" "$1"
    inherit_access "$1"
    mkdir -p "$1/var/cache/apt/archives"
    cp -n "$work"/packages/*.deb "$1/var/cache/apt/archives/"
}

# What a shared folder or a build context would hold: the checkout without what git ignores.
copy_checkout() {
    mkdir -p "$1"
    git -C "$repo" ls-files -z --cached --others --exclude-standard \
        | tar -C "$repo" --null --no-recursion -T - -c | tar -C "$1" -x --no-same-owner
}

# inside ROOT USER FOLDER COMMAND...: in namespaces that end with it; a user other than root has no
# capabilities and can gain none, as in a container without privileges.
inside() {
    local root=$1 user=$2 folder=$3 drop=()
    shift 3
    [ "$user" = root ] || drop=(--bounding-set=-all --inh-caps=-all --no-new-privs)
    unshare --mount --pid --ipc --uts --fork --kill-child bash -euc '
        root=$1 user=$2 folder=$3 shm=$4; shift 4
        mount --make-rprivate /
        mount -t proc proc "$root/proc"
        mount -t tmpfs -o mode=755,size=1m dev "$root/dev"
        for device in null zero full random urandom tty; do
            touch "$root/dev/$device" && mount --bind "/dev/$device" "$root/dev/$device"
        done
        mkdir "$root/dev/shm" "$root/dev/pts"
        mount -t tmpfs -o mode=1777,size="$shm" shm "$root/dev/shm"
        mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
        ln -s pts/ptmx "$root/dev/ptmx"
        ln -s /proc/self/fd "$root/dev/fd"
        home=$(awk -F: -v user="$user" "\$1 == user { print \$6 }" "$root/etc/passwd")
        settings=()
        while IFS= read -r line; do settings+=("$line"); done <"$root/etc/environment"
        exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
            HOME="$home" USER="$user" "${settings[@]}" chroot "$root" /usr/bin/env -C "$folder" "$@"
    ' - "$root" "$user" "$folder" "$shm_size" setpriv --reuid="$user" --regid="$user" --init-groups \
        "${drop[@]}" "$@" </dev/null
}

logged() {
    local log=$1
    shift
    "$@" >"$log" 2>&1 || { tail -20 "$log" >&2; die "failed; the whole output is in $log"; }
}

lend_kernels() {
    [ -n "$kernels" ] || return 0
    mkdir -p "$1/.cache/outcast"
    cp -a "$kernels" "$1/.cache/outcast/kernels"
    chown -R --reference="$1" "$1/.cache"
}

# The run's summary says that it is trusted, and its manifest that it was the virtual engine.
check_run() {
    grep -q '"trusted": true' "$1/summary.json" || die "the run is not trusted"
    grep -q '"engine": "virtual"' "$1/manifest.json" || die "the run was not virtual"
    [ -s "$1/report.html" ] || die "the run left no report"
}

check_vagrant() {
    local root=$work/vagrant home=/home/vagrant/outcast script
    if command -v ruby >/dev/null; then
        ruby -c "$repo/Vagrantfile" >/dev/null || die "Vagrantfile: syntax"
    else
        say "Vagrantfile: syntax not checked, there is no ruby"
    fi
    script=$(sed -n 's/.*provision "shell", inline: "\(.*\)"$/\1/p' "$repo/Vagrantfile")
    [ -n "$script" ] || die "Vagrantfile: no provisioning script found"
    fresh_root "$root"
    inside "$root" root / useradd --create-home --shell /bin/bash vagrant
    copy_checkout "$root$home"
    inside "$root" root / chown -R vagrant:vagrant "$home"
    logged "$work/vagrant-provision.log" inside "$root" root / bash -euc "$script"
    cp -n "$root"/var/cache/apt/archives/*.deb "$work/packages/" 2>/dev/null || true
    say "Vagrantfile: provisioned by: $script"
    logged "$work/vagrant-again.log" inside "$root" root / bash -euc "$script"
    say "Vagrantfile: provisioned once more"
    lend_kernels "$root/home/vagrant"
    logged "$work/vagrant-run.log" inside "$root" vagrant "$home" \
        .venv/bin/outcast "${experiment[@]}" -o results/provision
    check_run "$root$home/results/provision"
    say "Vagrantfile: the virtual engine ran as the user vagrant"
}

# The Containerfile's steps in their order; those that it does not use end the check.
check_container() {
    local root=$work/container user=root folder=/ step words entry=() number=0
    # What a container engine gives where it is asked for nothing.
    local shm_size=64m
    fresh_root "$root"
    while IFS= read -r step; do
        number=$((number + 1))
        case $step in
            'FROM debian:'*) ;;
            'RUN '*)
                if [[ $step == *'outcast kernel build'* && -n $kernels ]]; then
                    lend_kernels "$root/home/$user"
                fi
                logged "$work/container-$number.log" inside "$root" "$user" "$folder" \
                    sh -euc "${step#RUN }"
                ;;
            'COPY --chown='*)
                read -r -a words <<<"$step"
                [ "${words[2]}" = . ] || die "Containerfile: only the whole context is known: $step"
                copy_checkout "$root${words[3]}"
                inside "$root" root / chown -R "${words[1]#--chown=}:" "${words[3]}"
                ;;
            'USER '*) user=${step#USER } ;;
            'WORKDIR '*) folder=${step#WORKDIR } ;;
            'ENTRYPOINT '*) mapfile -t entry < <(python3 -c \
                'import json, sys; print(*json.loads(sys.argv[1]), sep="\n")' "${step#ENTRYPOINT }") ;;
            'CMD '*) ;;
            *) die "Containerfile: a step that this check does not know: $step" ;;
        esac
        say "Containerfile: $step"
    done < <(sed -e '/^#/d' -e '/^$/d' "$repo/Containerfile" | sed -e ':a' -e '/\\$/N; s/\\\n */ /; ta')
    [ "$user" != root ] || die "Containerfile: it runs as root"
    logged "$work/container-run.log" inside "$root" "$user" "$folder" \
        "${entry[@]}" "${experiment[@]}" -o results/provision
    check_run "$root$folder/results/provision"
    say "Containerfile: the virtual engine ran as the user $user, without capabilities"
}

[ -x "$base/usr/bin/apt-get" ] || make_base
for part in "${parts[@]}"; do
    "check_$part"
done
say "all passed: ${parts[*]}"
