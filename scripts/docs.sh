#!/usr/bin/env bash
# Builds the documentation as a site, and the manual page. A broken link, anchor or navigation entry
# fails it. Pages open from the disk; for their search serve them: python3 -m http.server -d site
# Usage: scripts/docs.sh [FOLDER]   (default: site)
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
site=$(realpath -m "${1:-site}")
# Not --quiet: that keeps warnings from being counted, so that none would fail the build.
output=$(NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict --site-dir "$site" 2>&1) \
    || { printf '%s\n' "$output" >&2; exit 1; }
.venv/bin/python -m scripts.manual "$site/outcast.1"
printf 'docs: %s/index.html, %s/outcast.1\n' "$site" "$site"
