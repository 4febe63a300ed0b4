#!/usr/bin/env bash
# Makes the golden runs under many conditions of this machine: limits, locales, users, memory, cores,
# folders and file systems. It prints a line for each, saying whether the captures are equal to the byte.
# Each has a fresh copy of the checkout, of the guest's kernel and of its root, in a folder of its own.
# A condition that this machine cannot give is named and left out. Some need root.
# It takes a minute for each condition. It is not part of scripts/test.sh, where scripts/test-elsewhere.sh
# combines some of them.
# Usage: scripts/test-replays.sh [--list] [--keep FOLDER] [CONDITION]...
#   --list         say what there is
#   --keep FOLDER  keep the fresh Debians there that chroots are copied from, not in ~/.cache/outcast/vm
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
self=$repo/scripts/test-replays.sh
. "$repo/scripts/lib/debian.sh"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/outcast
keep=${OUTCAST_TEST_KEEP:-$cache/vm}
python=$repo/.venv/bin/python
nobody=65534
chroot_user=tester chroot_packages="python3 python3-venv"
loop_size=4G memory_limit=800M

# A condition's name, and what it is. The function make_NAME, with _ for -, makes the runs.
declare -A about=(
    [plain]="as it is"
    [user]="a user without capabilities"
    [limits]="ulimit -Sn 1024"
    [stack]="ulimit -s unlimited, so that memory is laid out the other way round"
    [no-aslr]="setarch --addr-no-randomize"
    [posix]="LC_ALL=POSIX, Python's UTF-8 mode off"
    [latin]="LC_ALL=de_DE.ISO-8859-1, TZ=Asia/Kathmandu, a large environment"
    [umask]="umask 077"
    [core]="one core: taskset"
    [memory]="a memory limit of $memory_limit: cgroup"
    [load]="both cores kept busy, nice 19"
    [path]="a path with a space, [ and ü"
    [opt]="below /opt"
    [tmp]="below /tmp"
    [tmpfs]="checkout, root and results on tmpfs"
    [ext4]="on a fresh ext4 without dir_index, blocks of 1 KB"
    [xfs]="on XFS"
    [btrfs]="on btrfs"
    [overlay]="on overlayfs over ext4"
    [debian-12]="a plain user in a Debian 12 chroot"
    [debian-13]="a plain user in a Debian 13 chroot"
)
order=(plain user limits stack no-aslr posix latin umask core memory load path opt tmp tmpfs ext4 xfs
    btrfs overlay debian-12 debian-13)

left_out_status=77
work="" mounted="" group="" busy=()
end_all() {
    cd / # out of what is to be unmounted
    [ ${#busy[@]} -eq 0 ] || kill "${busy[@]}" 2>/dev/null || true
    [ -z "$mounted" ] || umount "$mounted"
    [ -z "$group" ] || rmdir "$group"
    [ -z "$work" ] || rm -rf --one-file-system "$work"
}
say() { printf 'test-replays: %s (%s s)\n' "$*" "$SECONDS"; }
die() { printf 'test-replays: error: %s\n' "$*" >&2; exit 1; }
trap end_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Ends a condition that this machine cannot give.
leave_out() { printf '%s\n' "$*"; exit "$left_out_status"; }
require_root() { [ "$(id -u)" -eq 0 ] || leave_out "needs root"; }

# below FOLDER: makes the folder of this condition below another one.
below() { work=$(mktemp -d "$1/outcast-replays.XXXXXX" 2>/dev/null) || leave_out "cannot write to $1"; }

# copy FOLDER: copies into it the checkout and the guest's kernels and roots.
copy() {
    local folder=$1 part
    mkdir -p "$folder/checkout" "$folder/cache/outcast" "$folder/tmp"
    copy_checkout "$folder/checkout"
    for part in kernels roots; do
        tar -C "$cache" --exclude='unfinished-*' -c "$part" | tar -C "$folder/cache/outcast" -xp
    done
}

# make_runs FOLDER COMMAND...: makes the runs in such a folder. COMMAND is put before Python, for example
# `taskset -c 0`.
make_runs() {
    local folder=$1
    shift
    cd "$folder/checkout"
    XDG_CACHE_HOME=$folder/cache TMPDIR=$folder/tmp HOME=$folder PYTHONDONTWRITEBYTECODE=1 \
        "$@" "$python" -m tests.golden.replays --engine-only
}

here() { copy "$1" && make_runs "$@"; }

# on_file_system MKFS...: makes the runs on a file system of its own, which MKFS makes in a file.
on_file_system() {
    require_root
    command -v "$1" >/dev/null || leave_out "needs $1"
    below /var/tmp
    truncate -s "$loop_size" "$work/image"
    "$@" "$work/image"
    mkdir "$work/mounted"
    mount -o loop "$work/image" "$work/mounted" || leave_out "this kernel does not mount it"
    mounted=$work/mounted
    here "$mounted/there"
}

make_plain() { below /var/tmp && here "$work"; }
make_user() {
    require_root
    local without_rights=(setpriv --reuid="$nobody" --regid="$nobody" --clear-groups --inh-caps=-all
        --bounding-set=-all --no-new-privs)
    "${without_rights[@]}" test -x "$python" || leave_out "user $nobody cannot read $repo"
    below /var/tmp
    copy "$work"
    chown -R "$nobody:$nobody" "$work"
    make_runs "$work" "${without_rights[@]}"
}
make_limits() { ulimit -Sn 1024 && make_plain; }
make_stack() { ulimit -s unlimited && make_plain; }
make_no_aslr() { below /var/tmp && here "$work" setarch --addr-no-randomize; }
make_posix() { below /var/tmp && here "$work" env LC_ALL=POSIX PYTHONCOERCECLOCALE=0 PYTHONUTF8=0; }
make_latin() {
    below /var/tmp
    here "$work" env LC_ALL=de_DE.ISO-8859-1 TZ=Asia/Kathmandu \
        LARGE="$(head -c 60000 /dev/zero | tr '\0' x)"
}
make_umask() { umask 077 && make_plain; }
make_core() { below /var/tmp && here "$work" taskset -c 0; }
make_memory() {
    require_root
    group=$(memory_group outcast-replays "$memory_limit") \
        || leave_out "this machine gives no memory cgroup"
    below /var/tmp
    here "$work" bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group"
}
make_load() {
    local core
    for core in $(seq "$(nproc)"); do
        (while :; do :; done) &
        busy+=($!)
    done
    below /var/tmp
    here "$work" nice -n 19
}
make_path() { below /var/tmp && here "$work/a path [of ü"; }
make_opt() { below /opt && here "$work"; }
make_tmp() { below /tmp && here "$work"; }
make_tmpfs() { below /dev/shm && here "$work"; }
make_ext4() { on_file_system mkfs.ext4 -q -F -b 1024 -O ^dir_index; }
make_xfs() { on_file_system mkfs.xfs -q; }
make_btrfs() { on_file_system mkfs.btrfs -q; }
make_overlay() {
    require_root
    below /var/tmp
    mkdir "$work"/{lower,upper,work,mounted}
    mount -t overlay overlay "$work/mounted" \
        -o "lowerdir=$work/lower,upperdir=$work/upper,workdir=$work/work" \
        || leave_out "this kernel mounts no overlay here"
    mounted=$work/mounted
    here "$mounted/there"
}

# in_chroot SUITE: makes the runs in a fresh Debian with nothing of the guest's programs.
in_chroot() {
    require_root
    command -v debootstrap >/dev/null || leave_out "needs debootstrap"
    local suite=$1 home=/home/$chroot_user
    local folder=$keep/$suite
    [ -x "$folder/base/usr/bin/apt-get" ] \
        || make_base "$suite" - "$folder/base" "$folder/packages" "$folder/debootstrap.log"
    below /var/tmp
    fresh_root "$folder/base" "$work/root" "$folder/packages"
    inside "$work/root" root / bash -euc "apt-get update
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $chroot_packages
        useradd --create-home $chroot_user"
    copy "$work/root$home"
    inside "$work/root" root / chown -R "$chroot_user:" "$home"
    shm_size=4g inside "$work/root" "$chroot_user" "$home/checkout" bash -euc "python3 -m venv ../venv
        ../venv/bin/pip install --quiet --no-deps --require-hashes -r scripts/requirements.lock
        XDG_CACHE_HOME=$home/cache ../venv/bin/python -m tests.golden.replays --engine-only"
}
make_debian_12() { in_chroot bookworm; }
make_debian_13() { in_chroot trixie; }

# Each condition has a process of its own, with what it has to clean up.
if [ "${1:-}" = --alone ]; then
    "make_${2//-/_}" "${@:3}"
    exit
fi

conditions=()
while [ $# -gt 0 ]; do
    case $1:${2:-} in
        --list:) for name in "${order[@]}"; do printf '%-10s %s\n' "$name" "${about[$name]}"; done; exit ;;
        --keep:?*) OUTCAST_TEST_KEEP=$(realpath "$2") && export OUTCAST_TEST_KEEP && shift 2 ;;
        *)
            [ -n "${about[$1]:-}" ] || { sed -n 's/^# Usage: /usage: /p' "$0" >&2; exit 2; }
            conditions+=("$1") && shift
            ;;
    esac
done
[ ${#conditions[@]} -gt 0 ] || conditions=("${order[@]}")

log=$(mktemp)
work=$log
failed=() left_out=0
for name in "${conditions[@]}"; do
    began=$SECONDS status=0
    "$self" --alone "$name" >"$log" 2>&1 || status=$?
    case $status in
        0) said=equal ;;
        "$left_out_status") said="left out: $(tail -n 1 "$log")" left_out=$((left_out + 1)) ;;
        *) said="**not equal**" failed+=("$name") ;;
    esac
    printf '| %s | %s | %s s |\n' "${about[$name]}" "$said" "$((SECONDS - began))"
    [ "$said" != "**not equal**" ] || cat "$log"
done
if [ ${#failed[@]} -gt 0 ]; then
    printf 'test-replays: error: not equal: %s\n' "${failed[*]}" >&2
    exit 1
fi
printf 'test-replays: equal under %s conditions, %s left out (%s s)\n' \
    "$((${#conditions[@]} - left_out))" "$left_out" "$SECONDS"
