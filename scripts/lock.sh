#!/usr/bin/env bash
# Writes scripts/requirements.lock anew, with the newest versions that pyproject.toml allows.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Without system packages, so that the lock is complete on a machine that has none of them.
/usr/bin/python3 -m venv "$work/venv"
"$work/venv/bin/python" >"$work/requirements.in" <<'EOF'
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
extras = project["optional-dependencies"].values()
print(*project["dependencies"], *(line for extra in extras for line in extra), sep="\n")
EOF
"$work/venv/bin/pip" install --quiet --disable-pip-version-check -r "$work/requirements.in"
{
    echo "# Every package of the virtual environment, pinned; written by scripts/lock.sh."
    "$work/venv/bin/pip" freeze | grep -viE '^pbr=='
} >"$work/requirements.lock"
mv "$work/requirements.lock" scripts/requirements.lock
