#!/usr/bin/env bash
# Gradescope calls this once as root, when the image is built: a virtual environment with outcast.
set -euo pipefail
source_folder=${1:-/autograder/source}
venv=${2:-/autograder/venv}

python=
for name in python3.13 python3.12 python3.11 python3; do
    if command -v "$name" >/dev/null \
        && "$name" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$name
        break
    fi
done
if [ -z "$python" ]; then
    apt-get update
    apt-get install -y --no-install-recommends python3.11 python3.11-venv
    python=python3.11
fi
command -v setpriv >/dev/null || apt-get install -y --no-install-recommends util-linux

"$python" -m venv "$venv"
"$venv/bin/pip" install --no-cache-dir "$source_folder"/wheels/*.whl
# Unpacks the guest, and fails here where the container cannot run it.
"$venv/bin/outcast" doctor
