# Sourced by the scripts that try outcast on a fresh Debian. It makes roots by debootstrap from the
# mirror of this machine's apt sources, and runs commands in them. The sourcing script defines `say`,
# `die` and `repo`, the checkout.

require_programs() {
    local program
    [ "$(id -u)" -eq 0 ] || die "root is needed for debootstrap and chroot"
    for program in "$@"; do
        command -v "${program%%:*}" >/dev/null \
            || die "${program%%:*} is missing: apt-get install ${program##*:}"
    done
}

# Prints this machine's own release as apt sources name it.
own_suite() { . /etc/os-release && printf %s "$VERSION_CODENAME"; }

# Prints the mirror from which this machine gets its Debian packages.
debian_mirror() {
    local mirror
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(RELEASE) $(COMPONENT) $(REPO_URI)' \
        'Created-By: Packages' | awk -v suite="$(own_suite)" \
        '$1 == "Debian" && $2 == suite && $3 == "main" { print $4; exit }')
    [ -n "$mirror" ] || die "this machine's apt sources name no mirror of Debian's $(own_suite)"
    printf %s "$mirror"
}

# make_base SUITE VARIANT ROOT PACKAGES LOG: makes a fresh Debian in the folder ROOT, which appears
# only when it is whole. The folder PACKAGES keeps what was downloaded.
make_base() {
    local suite=$1 variant=$2 root=$3 packages=$4 log=$5 mirror
    mirror=$(debian_mirror)
    rm -rf --one-file-system "$root" "$root.new"
    mkdir -p "$packages"
    debootstrap --variant="$variant" --cache-dir="$packages" "$suite" "$root.new" "$mirror" \
        >"$log" 2>&1 || { tail -5 "$log" >&2; die "debootstrap of $suite failed: $log"; }
    mv "$root.new" "$root"
    say "a fresh Debian $suite: $(du -sm "$root" | cut -f1) MB"
}

# Gives the root this machine's access to registries: resolver, certificates and pip's settings.
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

# fresh_root BASE ROOT PACKAGES: copies the base root, and adds the packages downloaded before.
fresh_root() {
    local base=$1 root=$2 packages=$3
    rm -rf --one-file-system "$root"
    cp -a "$base" "$root"
    inherit_access "$root"
    mkdir -p "$root/var/cache/apt/archives"
    cp -n "$packages"/*.deb "$root/var/cache/apt/archives/"
}

keep_packages() { cp -n "$1"/var/cache/apt/archives/*.deb "$2/" 2>/dev/null || true; }

# Lists what a shared folder or a build context would hold: the checkout without what git ignores.
list_checkout() {
    local file
    # A file whose deletion is not yet committed is still in the index.
    git -C "$repo" ls-files -z --cached --others --exclude-standard \
        | while IFS= read -r -d '' file; do
            if [ -e "$repo/$file" ] || [ -L "$repo/$file" ]; then printf '%s\0' "$file"; fi
        done
}

tar_checkout() { list_checkout | tar -C "$repo" --null --no-recursion -T - -c "$@"; }

copy_checkout() {
    mkdir -p "$1"
    tar_checkout | tar -C "$1" -x --no-same-owner
}

# inside ROOT USER FOLDER COMMAND...: runs a command in namespaces that end with it. A user other than
# root has no capabilities and can gain none, as in a container without privileges.
inside() {
    local root=$1 user=$2 folder=$3 drop=()
    shift 3
    [ "$user" = root ] || drop=(--bounding-set=-all --inh-caps=-all --no-new-privs)
    unshare --mount --pid --ipc --uts --fork --kill-child bash -euc '
        root=$1 user=$2 folder=$3 shm=$4; shift 4
        mount --make-rprivate /
        # With chroot, programs that enter a mount namespace would see the outer root.
        mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        mount -t sysfs sys "$root/sys"
        mount -t tmpfs -o mode=755,size=1m dev "$root/dev"
        for device in null zero full random urandom tty; do
            touch "$root/dev/$device" && mount --bind "/dev/$device" "$root/dev/$device"
        done
        mkdir "$root/dev/shm" "$root/dev/pts" "$root/dev/net"
        if [ -e /dev/net/tun ]; then
            touch "$root/dev/net/tun" && mount --bind /dev/net/tun "$root/dev/net/tun"
        fi
        mount -t tmpfs -o mode=1777,size="$shm" shm "$root/dev/shm"
        mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
        ln -s pts/ptmx "$root/dev/ptmx"
        ln -s /proc/self/fd "$root/dev/fd"
        home=$(awk -F: -v user="$user" "\$1 == user { print \$6 }" "$root/etc/passwd")
        settings=()
        while IFS= read -r line; do settings+=("$line"); done <"$root/etc/environment"
        cd "$root" && pivot_root . mnt && cd / && umount -l /mnt
        exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
            HOME="$home" USER="$user" "${settings[@]}" /usr/bin/env -C "$folder" "$@"
    ' - "$root" "$user" "$folder" "${shm_size:-2g}" setpriv --reuid="$user" --regid="$user" \
        --init-groups "${drop[@]}" "$@" </dev/null
}

# memory_group NAME LIMIT: makes a cgroup with this limit of memory, and prints its folder.
memory_group() {
    local file=memory.max folder=/sys/fs/cgroup
    if [ -d $folder/memory ]; then
        file=memory.limit_in_bytes folder=$folder/memory
    fi
    mkdir "$folder/$1" || return
    echo "$2" >"$folder/$1/$file" || { rmdir "$folder/$1"; return 1; }
    printf %s "$folder/$1"
}

logged() {
    local log=$1
    shift
    "$@" >"$log" 2>&1 || { tail -20 "$log" >&2; die "failed; the whole output is in $log"; }
}
