#!/usr/bin/env bash
# Tries outcast on a second machine. It boots a stock Debian 12 and a stock Debian 13 in QEMU, with the
# distribution's own kernel and default limits, on 2 CPUs and 4 GB like the Vagrantfile's machine.
# tests/vm/checks.sh runs there as a user with sudo. There is no network card, because the image has
# what the checks need.
# The image of a release is made by debootstrap and chroot, from the mirror of this machine's apt
# sources. It is kept between calls until something that decides it changes (this script's list,
# install.sh, the lock files). The checkout is copied at each call. KVM is used if it boots a
# kernel, and otherwise TCG, which is some ten times slower. QEMU is Debian 13's, in a root of its own,
# because TCG of Debian 12's (7.2) takes a wrong register in a vector instruction that polars uses
# (vpgatherqq by ymm4, QEMU's issue 2474).
# On two cores with TCG and other work, each release takes 8 to 13 min and 3 GB for the image, and an
# hour and a half for the checks. This script is not part of scripts/test.sh.
# With --cpu the processor is emulated as a model of QEMU's, as qemu64 (x86-64-v1, and SSE3), Haswell or
# max; `golden` is the check that shows that the model does not decide the captures.
# Usage, as root: scripts/test-vm.sh [--suite bookworm|trixie]... [--cpu MODEL]... [--cpus N] [--keep FOLDER] [--cache FOLDER] [--check NAME]...
#   --cpu MODEL       emulate this model; several are tried one after the other
#   --cpus N          the machine has N processors, not 2
#   --keep FOLDER     put images and logs there, not into ~/.cache/outcast/vm
#   --cache FOLDER    hand in the kernels and roots of this cache, not of ~/.cache/outcast
#   --check NAME      run only this check of tests/vm/checks.sh
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$repo/scripts/lib/debian.sh"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/outcast
keep=$cache/vm suites=() models=() checks=()
user=tester
# Packages that make debootstrap's root bootable, and those that install.sh adds without --virtual,
# because the machine has no network.
packages=(
    linux-image-amd64 systemd-sysv libpam-systemd dbus sudo ca-certificates
    mininet openvswitch-switch iperf iperf3 iputils-ping iproute2 ethtool tcpdump
    gcc libc6-dev make chromium curl nginx-light tshark nftables
)
image_size=12G
cpus=2 memory_mib=4096
kvm_deadline_s=30 boot_deadline_s=900 end_deadline_s=300 margin_s=60

say() { printf 'test-vm: %s (%s s)\n' "$*" "$SECONDS"; }
die() { printf 'test-vm: error: %s\n' "$*" >&2; exit 1; }

while [ $# -gt 0 ]; do
    case $1:${2:-} in
        --suite:bookworm | --suite:trixie) suites+=("$2") && shift 2 ;;
        --keep:?*) keep=$(realpath "$2") && shift 2 ;;
        --cache:?*) cache=$(realpath "$2") && shift 2 ;;
        --cpu:?*) models+=("$2") && shift 2 ;;
        --cpus:[1-9] | --cpus:[1-9][0-9]) cpus=$2 && shift 2 ;;
        --check:?*) checks+=("$2") && shift 2 ;;
        *) sed -n 's/^# Usage, as root: /usage: /p' "$0" >&2; exit 2 ;;
    esac
done
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie)
[ ${#models[@]} -gt 0 ] || models=("") # whatever the accelerator offers
require_programs debootstrap mke2fs:e2fsprogs unshare:util-linux setpriv:util-linux tar git
for kernel in "$cache"/kernels/*/linux; do
    [ -x "$kernel" ] || die "$cache has no kernel to hand in: scripts/guest/build"
done
[ -d "$cache/roots" ] || die "$cache has no root to hand in: scripts/guest/build"

mkdir -p "$keep"
qemu="" going_on="" temporary=$(mktemp -d "$keep/call.XXXXXX")
# Also called on Ctrl-C and on errors.
end_all() {
    if [ -n "$going_on" ]; then
        tail -20 "$going_on" >&2
        printf 'test-vm: error: not done; the whole output is in %s\n' "$going_on" >&2
    fi
    end_qemu
    rm -rf --one-file-system "$temporary"
}
trap end_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Debian 13's QEMU, in a root of its own.
require_qemu() {
    local root=$keep/qemu/root new=$keep/qemu/root.new
    [ ! -x "$root/usr/bin/qemu-system-x86_64" ] || return 0
    say "making a root for QEMU"
    mkdir -p "$keep/qemu"
    make_base trixie minbase "$keep/qemu/base" "$keep/qemu/packages" "$keep/qemu/debootstrap.log"
    fresh_root "$keep/qemu/base" "$new" "$keep/qemu/packages"
    going_on=$keep/qemu/install.log
    inside "$new" root / bash -euc 'apt-get update
        apt-get install -y --no-install-recommends qemu-system-x86' >"$going_on" 2>&1
    going_on=""
    rm -rf --one-file-system "$root" "$keep/qemu/base"
    mv "$new" "$root"
}

# start_qemu FOLDER ACCELERATOR MODEL COMMAND-LINE-OF-THE-KERNEL OPTION...: starts the release's kernel
# in FOLDER on a processor of this model. Its console goes to $temporary/console.
start_qemu() {
    local folder=$1 accelerator=$2 model=$3 append=$4
    shift 4
    [ "$accelerator" != tcg ] || accelerator=tcg,thread=multi
    : >"$temporary/console"
    # What the machine writes to its disk goes into an unlinked file in TMPDIR.
    TMPDIR=$temporary unshare --mount bash -euc '
        root=$1/qemu/root
        mkdir -p "$root$1"
        mount --bind /dev "$root/dev"
        mount --bind "$1" "$root$1"
        shift
        exec chroot "$root" /usr/bin/qemu-system-x86_64 "$@"
    ' - "$keep" -accel "$accelerator" -cpu "$model" -smp "$cpus" -m "$memory_mib" \
        -nodefaults -display none -no-reboot -device virtio-rng-pci \
        -kernel "$folder/vmlinuz" -initrd "$folder/initrd" -append "console=ttyS0 panic=-1 $append" \
        -serial "file:$temporary/console" "$@" </dev/null >"$temporary/qemu" 2>&1 &
    qemu=$!
    disown "$qemu" # otherwise bash prints how it ended
}

qemu_runs() { [ -n "$qemu" ] && kill -0 "$qemu" 2>/dev/null; }

# Nobody can end a QEMU that hangs in the kernel's KVM, so it is left alone after a deadline.
end_qemu() {
    local signal waited
    for signal in TERM KILL; do
        qemu_runs || break
        kill -s "$signal" "$qemu"
        for ((waited = 0; waited < 10; waited++)); do
            qemu_runs || break 2
            sleep 1
        done
    done
    ! qemu_runs || say "QEMU cannot be ended, process $qemu"
    qemu=""
}

# Chooses the accelerator: KVM if it boots this release's kernel until that misses its disk, or TCG. A
# named model is emulated, because KVM gives programs the instructions of this machine's processor.
choose_accelerator() {
    local folder=$1 end=$((SECONDS + kvm_deadline_s))
    accelerator=tcg
    if [ -z "$model" ] && [ -w /dev/kvm ]; then
        start_qemu "$folder" kvm host ""
        while qemu_runs && [ $SECONDS -lt $end ] && [ $accelerator = tcg ]; do
            sleep 1
            ! grep -aq 'Run /init as init process' "$temporary/console" || accelerator=kvm
        done
        end_qemu
        [ $accelerator = kvm ] \
            || say "/dev/kvm is there, but booted nothing in $kvm_deadline_s s $(head -n 1 "$temporary/qemu")"
    fi
    if [ -z "$model" ]; then
        [ $accelerator = kvm ] && model=host || model=max
    fi
    say "accelerator: $accelerator, processor: $model, $cpus of them"
}

# What decides a release's image.
image_key() {
    {
        printf '%s\n' "$1" "$user" "$image_size" "${packages[@]}"
        declare -f make_image prepare_root
        cat "$repo"/scripts/install.sh "$repo"/scripts/requirements*.lock "$repo/pyproject.toml" \
            "$repo/setup.py"
    } | sha256sum
}

# In the root, by chroot: packages, the user, the checkout at its place, and its .venv.
prepare_root() {
    local root=$1 home=/home/$user
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # invoke-rc.d(8): start nothing
    chmod +x "$root/usr/sbin/policy-rc.d"
    inside "$root" root / apt-get update
    inside "$root" root / env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "${packages[@]}"
    inside "$root" root / useradd --create-home --shell /bin/bash "$user"
    printf '%s ALL=(ALL) NOPASSWD: ALL\n' "$user" >"$root/etc/sudoers.d/$user"
    copy_checkout "$root$home/outcast"
    inside "$root" root / chown -R "$user:" "$home"
    inside "$root" root / "$home/outcast/scripts/install.sh" --virtual
    rm "$root/usr/sbin/policy-rc.d"
    : >"$root/etc/environment"
    : >"$root/etc/machine-id"
    printf 'outcast\n' >"$root/etc/hostname"
    printf '127.0.0.1 localhost\n127.0.1.1 outcast\n::1 localhost\n' >"$root/etc/hosts"
    printf '/dev/vda / ext4 defaults 0 1\n' >"$root/etc/fstab"
    cat >"$root/etc/systemd/system/outcast-checks.service" <<'UNIT'
[Unit]
Description=The checks of outcast
After=systemd-user-sessions.service systemd-logind.service openvswitch-switch.service
SuccessAction=poweroff
FailureAction=poweroff
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/usr/local/sbin/outcast-checks
[Install]
WantedBy=multi-user.target
UNIT
    # The second disk is an archive, and the second serial port is the log.
    cat >"$root/usr/local/sbin/outcast-checks" <<SCRIPT
#!/bin/bash
run() {
    echo booted
    cd $home
    find outcast -mindepth 1 -maxdepth 1 ! -name .venv -exec rm -rf {} +
    runuser -u $user -- tar -x </dev/vdb
    mkdir -p /root/.cache
    cp -a --no-preserve=ownership .cache/outcast /root/.cache
    outcast/tests/vm/checks.sh \$(cat checks) </dev/null
}
stty -F /dev/ttyS1 raw -echo
# Through a pipe, because programs draw progress if they find a terminal.
run 2>&1 | cat >/dev/ttyS1
SCRIPT
    chmod +x "$root/usr/local/sbin/outcast-checks"
    inside "$root" root / systemctl enable outcast-checks.service
}

# make_image SUITE FOLDER: makes an image. Its key is written last, so it counts only when it is whole.
make_image() {
    local suite=$1 folder=$2 root=$2/root
    rm -f "$folder/key"
    [ -x "$folder/base/usr/bin/apt-get" ] \
        || make_base "$suite" - "$folder/base" "$folder/packages" "$folder/debootstrap.log"
    fresh_root "$folder/base" "$root" "$folder/packages"
    # Not in a condition, because a function that is called in one goes on after a failing step.
    going_on=$folder/image.log
    prepare_root "$root" >"$going_on" 2>&1
    going_on=""
    keep_packages "$root" "$folder/packages"
    rm -rf "$root"/var/cache/apt/archives/*.deb
    say "$suite: a machine with outcast's packages: $(du -sm "$root" | cut -f1) MB"
    cp "$root"/boot/vmlinuz-* "$folder/vmlinuz"
    cp "$root"/boot/initrd.img-* "$folder/initrd"
    rm -f "$folder/image"
    logged "$folder/mke2fs.log" mke2fs -q -t ext4 -d "$root" "$folder/image" "$image_size"
    rm -rf --one-file-system "$root"
}

require_image() {
    local suite=$1 folder=$2 key
    mkdir -p "$folder"
    key=$(image_key "$suite")
    if [ "$(cat "$folder/key" 2>/dev/null)" = "$key" ]; then
        say "$suite: the image is there"
        return
    fi
    say "$suite: making the image"
    make_image "$suite" "$folder"
    printf '%s\n' "$key" >"$folder/key"
    say "$suite: image made: $(du -sm "$folder/image" | cut -f1) MB"
}

# Makes the archive on the machine's second disk: the checkout, the kernels and roots of the guest, and
# which checks to run.
make_archive() {
    local archive=$1 part
    printf '%s\n' "${checks[*]}" >"$temporary/checks"
    tar_checkout --transform 'flags=r;s,^,outcast/,' -f "$archive"
    for part in kernels roots; do
        # The names of files change, and the targets of links in a root do not.
        tar -C "$cache" -r -f "$archive" --exclude='unfinished-*' \
            --transform 'flags=rh;s,^,.cache/outcast/,' "$part"
    done
    tar -C "$temporary" -r -f "$archive" checks
}

# Shows results as they come, until the machine is off. The log has each check's deadline where the
# check begins. The machine is ended some time after that.
follow() {
    local log=$1 end=$((SECONDS + boot_deadline_s)) awaited="its boot" shown=0 line
    while qemu_runs; do
        sleep 2
        while IFS= read -r line; do
            shown=$((shown + 1))
            case $line in
                '== '*) awaited=${line#== } end=$((SECONDS + ${line##* } + margin_s)) ;;
                booted) end=$((SECONDS + boot_deadline_s)) awaited="the checks' start" ;;
                'PASS '* | 'FAIL '*) say "$suite: $line" ;;
                *' passed, '*' failed') end=$((SECONDS + end_deadline_s)) awaited="its power off" ;;
            esac
        done < <(tail -n "+$((shown + 1))" "$log" | head -n "$(($(wc -l <"$log") - shown))")
        if [ $SECONDS -ge $end ]; then
            say "$suite: the machine hangs; it was in: $awaited"
            return
        fi
    done
}

# test_suite SUITE MODEL: boots a release and runs the checks. Adds it to `failed` if not all passed.
test_suite() {
    local suite=$1 model=$2 folder=$keep/$1 last log
    require_image "$suite" "$folder"
    choose_accelerator "$folder"
    make_archive "$temporary/archive"
    log=$folder/checks-$model-$cpus
    : >"$log.log"
    start_qemu "$folder" "$accelerator" "$model" "root=/dev/vda rw net.ifnames=0" \
        -drive "file=$folder/image,if=virtio,format=raw,snapshot=on,cache=unsafe" \
        -drive "file=$temporary/archive,if=virtio,format=raw,readonly=on" \
        -serial "file:$log.log"
    follow "$log.log"
    end_qemu
    cp "$temporary/console" "$log.console"
    cat "$temporary/qemu"
    last=$(tail -n 1 "$log.log")
    say "$suite: ${last:-nothing came}; logs: $log.log, $log.console"
    [[ $last =~ ^[1-9][0-9]*\ passed,\ 0\ failed$ ]] || failed+=("$suite ($model)")
}

require_qemu
failed=()
for suite in "${suites[@]}"; do
    for model in "${models[@]}"; do
        test_suite "$suite" "$model"
    done
done
[ ${#failed[@]} -eq 0 ] || die "failed on: ${failed[*]}"
say "all passed on: ${suites[*]}"
