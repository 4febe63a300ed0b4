#!/usr/bin/env bash
# Builds the documentation as a site, and the manual page. It fails if a link, an anchor or an entry
# of the navigation is broken, if the site loads something from elsewhere, or if groff warns. Pages
# open from the disk. For their search, serve them: python3 -m http.server -d site
# Usage: scripts/docs.sh [FOLDER]   (default: site)
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
site=$(realpath -m "${1:-site}")
# Without --quiet, because that keeps warnings from being counted, and no warning would fail the build.
output=$(NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict --site-dir "$site" 2>&1) \
    || { printf '%s\n' "$output" >&2; exit 1; }
elsewhere='<(script|img|iframe)[^>]* src="?(https?:)?//|<link[^>]*rel="?(stylesheet|preconnect)[^>]*href="?(https?:)?//'
if grep -rlE "$elsewhere" --include='*.html' "$site" >&2; then
    echo 'docs: these pages load something from elsewhere' >&2
    exit 1
fi
.venv/bin/python scripts/manual.py "$site/outcast.1"
if command -v groff >/dev/null; then
    warnings=$(groff -man -Tutf8 -ww -z "$site/outcast.1" 2>&1)
    [ -z "$warnings" ] || { printf '%s\n' "$warnings" >&2; exit 1; }
fi
printf 'docs: %s/index.html, %s/outcast.1\n' "$site" "$site"
