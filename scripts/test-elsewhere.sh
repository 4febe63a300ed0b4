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

mkdir -p "$copy" "$home/.cache/outcast"
git -C "$root" ls-files -z --cached --others --exclude-standard \
    | tar -C "$root" --null --no-recursion -T - -c | tar -C "$copy" -x --no-same-owner
tar -C "${XDG_CACHE_HOME:-$HOME/.cache}/outcast" --exclude='unfinished-*' -c kernels roots \
    | tar -C "$home/.cache/outcast" -xp

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
    there env -u XDG_CACHE_HOME -u XDG_RUNTIME_DIR HOME="$home" "${as_nobody[@]}" "$@"
}

# The calling user installs, because that user's pip cache saves the download.
there scripts/install.sh --virtual
if [ "$(id -u)" -eq 0 ]; then
    chown -R "$nobody:$nobody" "$work" "$memory"
fi
without_rights .venv/bin/pytest -n "$(nproc)" --dist loadfile tests/unit
# With PYTHONUTF8=0 Python does not take names for UTF-8 either, as in a locale of ISO 8859-1.
result="results/a run [of ü"
without_rights env PYTHONUTF8=0 .venv/bin/outcast run configs/fig3c.yaml --engine virtual \
    --set duration=100ms --set 'analysis.windows=[100ms]' -o "$result"
without_rights env PYTHONUTF8=0 .venv/bin/outcast inspect "$result" --flow 0 >/dev/null
# scripts/test-replays.sh tries these and others one by one.
mv "$home/.cache" "$memory/cache"
without_rights env XDG_CACHE_HOME="$memory/cache" TMPDIR="$memory" taskset -c 0 \
    bash -c 'umask 077; ulimit -s unlimited; exec "$@"' - \
    .venv/bin/python -m tests.golden.replays --engine-only
printf 'test-elsewhere: passed in %s s\n' "$SECONDS"
