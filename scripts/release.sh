#!/usr/bin/env bash
# Builds the wheels of a release from the last commit: outcast-testbed, outcast-test, which has the same code
# and installs half as much, for tests by pytest alone, and outcast-guest with the kernel and the programs
# of the virtual engine. Beside them it writes the bill of materials (CycloneDX), from the
# locks. The same commit gives the same bytes.
# Usage: scripts/release.sh [--only-outcast] [FOLDER]
#   --only-outcast  not outcast-guest
#   FOLDER          where the wheels go; dist/ otherwise
set -euo pipefail

export LC_ALL=C.UTF-8
umask 022

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$root/.venv/bin/python
most_megabytes=100

say() { printf 'release: %s\n' "$*"; }
die() { printf 'release: error: %s\n' "$*" >&2; exit 1; }

with_guest=true
if [ "${1:-}" = --only-outcast ]; then
    with_guest=false
    shift
fi
case "$#:${1:-}" in
    0: | 1:[!-]*) ;;
    *) sed -n 's/^# Usage: /usage: /p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
folder=${1:-$root/dist}
[ -x "$python" ] || die "scripts/install.sh has not been run"
[ -z "$(git -C "$root" status --porcelain)" ] || say "changes that are not committed are left out"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct)
export SOURCE_DATE_EPOCH

# wheel_of TREE: builds with the locked setuptools, whose version decides the bytes too.
wheel_of() {
    "$python" -I -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
        --wheel-dir "$work/wheels" "$1"
}

mkdir "$work/outcast"
git -C "$root" archive HEAD | tar -C "$work/outcast" -x
wheel_of "$work/outcast"
cp -r "$work/outcast" "$work/test"
sed -i -e 's/^name = "outcast-testbed"$/name = "outcast-test"/' \
    -e '/^    # Not in outcast-test /,/^\]$/{ /^\]$/!d }' "$work/test/pyproject.toml"
wheel_of "$work/test"
(cd "$work/outcast" && "$python" -m scripts.bill_of_materials) >"$work/wheels/outcast.cdx.json"
if $with_guest; then
    # The code of the commit, because its lock and recipe say which kernel and root are needed.
    PYTHONPATH=$work/outcast "$python" -P -m scripts.guest.wheel "$work/guest"
    wheel_of "$work/guest"
    size=$(du -m --apparent-size "$work"/wheels/outcast_guest-*.whl | cut -f1)
    [ "$size" -le "$most_megabytes" ] \
        || die "outcast-guest has $size MB; at most $most_megabytes MB are allowed"
fi
mkdir -p "$folder"
for file in "$work"/wheels/*; do
    # Renamed when whole, so that nobody installs a half.
    cp "$file" "$folder/.${file##*/}.new"
    mv "$folder/.${file##*/}.new" "$folder/${file##*/}"
    say "$folder/${file##*/}: $(stat -c %s "$file") bytes, sha256 $(sha256sum "$file" | cut -c1-64)"
done
