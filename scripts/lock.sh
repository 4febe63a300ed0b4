#!/usr/bin/env bash
# Writes scripts/*.lock again: the version and the hashes of every Python package, for every Python that
# pyproject.toml allows. Versions that still fit stay.
# Usage: scripts/lock.sh [--upgrade]
#   --upgrade  take the newest versions that pyproject.toml allows
set -euo pipefail

case "$#:${1:-}" in
    0: | 1:--upgrade) ;;
    *) sed -n 's/^# Usage: /usage: /p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
/usr/bin/python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check uv

# compile LOCK OPTION...: writes a lock file, whose versions are kept, and keeps its first comment.
compile() {
    local lock=scripts/$1
    shift
    cp "$lock" "$work/lock"
    "$work/venv/bin/uv" pip compile --quiet --cache-dir "$work/cache" --generate-hashes --no-header \
        --no-annotate --universal --python-version 3.11 --output-file "$work/lock" "$@" >/dev/null
    { sed '/^[^#]/,$d' "$lock"; cat "$work/lock"; } >"$work/whole"
    cp "$work/whole" "$lock"
}

printf 'setuptools\n' >"$work/build.in" # what builds our own package
compile requirements.lock "$@" --all-extras pyproject.toml "$work/build.in"
# Ryu is no longer maintained, so what it is built with and needs stays.
for lock in requirements-ryu-build.lock requirements-ryu.lock; do
    compile "$lock" --no-deps "scripts/$lock"
done
