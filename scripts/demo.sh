#!/usr/bin/env bash
# The main job from a fresh clone: installs what is missing, starves a flow in a k=4 fat tree,
# prints who got what, and says where the figures are.
# Usage: sudo scripts/demo.sh [OPTION OF outcast run]...
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/install.sh
exec .venv/bin/outcast run configs/fattree-12.yaml "$@"
