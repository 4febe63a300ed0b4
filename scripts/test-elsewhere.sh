#!/usr/bin/env bash
# Installs a copy of this checkout and tests it under other conditions: a path with a space, `[` and
# `ü`, a locale that is not UTF-8, the usual limit of 1024 open files, and a user without any rights.
# It runs the unit tests, and a run in the guest, whose kernel has to be built. The golden runs are made
# on one core, with umask 077, another layout of memory, and everything on tmpfs.
# Usage: scripts/test-elsewhere.sh
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
nobody=65534
work=$(mktemp -d)
# On Linux this is a tmpfs, so that files stand in other places and another order than on a disk.
memory=$(mktemp -d /dev/shm/outcast.XXXXXX)
trap 'rm -rf --one-file-system "$work" "$memory"' EXIT
copy="$work/a copy [of ü]" home="$work/a home [of ü"

mkdir -p "$copy" "$home"
git -C "$root" ls-files -z --cached --others --exclude-standard \
    | tar -C "$root" --null --no-recursion -T - -c | tar -C "$copy" -x --no-same-owner

as_nobody=()
if [ "$(id -u)" -eq 0 ]; then
    as_nobody=(setpriv --reuid="$nobody" --regid="$nobody" --clear-groups
        --inh-caps=-all --bounding-set=-all --no-new-privs)
fi

# PYTHONCOERCECLOCALE keeps Python from choosing a UTF-8 locale for the programs that it starts.
there() {
    (
        cd "$copy"
        ulimit -Sn 1024
        LC_ALL=POSIX PYTHONCOERCECLOCALE=0 "$@"
    )
}
without_rights() {
    # pytest names its folder by the user, and a login of root sets these.
    there env -u XDG_CACHE_HOME -u XDG_RUNTIME_DIR -u USER -u LOGNAME HOME="$home" \
        "${as_nobody[@]}" "$@"
}

# The calling user installs, because that user's pip cache saves the download. Meanwhile the kernel
# may be under way (scripts/test.sh).
# Bytecode of all packages takes longer than that of the modules imported here. pip takes `no` for on.
PIP_NO_COMPILE=no there scripts/install.sh --virtual
"$root/.venv/bin/outcast" guest info >/dev/null 2>&1 || "$root/scripts/guest/build"
for cache in "$home/.cache/outcast" "$memory/cache/outcast"; do
    mkdir -p "$cache"
    tar -C "${XDG_CACHE_HOME:-$HOME/.cache}/outcast" --exclude='unfinished-*' -c kernels roots \
        | tar -C "$cache" -xp
done
if [ "$(id -u)" -eq 0 ]; then
    chown -R "$nobody:$nobody" "$work" "$memory"
fi
# These take one core beside the unit tests. scripts/test-replays.sh tries them and others one by one.
without_rights env XDG_CACHE_HOME="$memory/cache" TMPDIR="$memory" taskset -c 0 \
    bash -c 'umask 077; ulimit -s unlimited; exec "$@"' - \
    .venv/bin/python -m tests.golden.replays --engine-only >"$memory/replays.log" 2>&1 &
replays=$!
failed=()
without_rights .venv/bin/pytest -n "$(nproc)" --dist loadfile tests/unit || failed+=(unit)
# With PYTHONUTF8=0 Python does not take names for UTF-8 either, as in a locale of ISO 8859-1.
result="results/a run [of ü"
without_rights env PYTHONUTF8=0 .venv/bin/outcast run configs/fig3c.yaml --engine virtual \
    --set duration=100ms --set 'analysis.windows=[100ms]' -o "$result" || failed+=(run)
without_rights env PYTHONUTF8=0 .venv/bin/outcast inspect "$result" --flow 0 >/dev/null \
    || failed+=(inspect)
wait "$replays" || failed+=(replays)
cat "$memory/replays.log"
if [ ${#failed[@]} -gt 0 ]; then
    printf 'test-elsewhere: failed: %s\n' "${failed[*]}" >&2
    exit 1
fi
printf 'test-elsewhere: passed in %s s\n' "$SECONDS"
