#!/usr/bin/env bash
# Makes the repository of a class, which students open in GitHub Codespaces or in VS Code: the files of
# classroom/, and in wheels/ outcast with its guest, built from the last commit.
# Usage: scripts/classroom.sh FOLDER
#   FOLDER  where to write it; it must not exist
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() { printf 'classroom: error: %s\n' "$*" >&2; exit 1; }

case "$#:${1:-}" in
    1:[!-]*) ;;
    *) sed -n 's/^# Usage: /usage: /p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
folder=$(realpath -m -- "$1")
[ ! -e "$folder" ] || die "$folder is there already"
parent=$(dirname "$folder")
[ -d "$parent" ] || die "$parent is no folder"

work=$(mktemp -d "$parent/.classroom.XXXXXX")
trap 'rm -rf "$work"' EXIT
"$root/scripts/release.sh" "$work/wheels"
git -C "$root" archive HEAD:classroom | tar -C "$work" -x
# Without hashes, because pip would then ask them of our own wheels too.
git -C "$root" show HEAD:scripts/requirements.lock | sed '/^ /d; s/ \\$//' >"$work/wheels/constraints.txt"
chmod 755 "$work"
# Renamed when whole, so that nobody publishes a half.
mv "$work" "$folder"
printf 'classroom: %s: %s; publish it with git, and mark it as a template\n' \
    "$folder" "$(du -sh "$folder" | cut -f1)"
