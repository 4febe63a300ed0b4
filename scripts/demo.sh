#!/usr/bin/env bash
# The main job from a fresh clone: installs what is missing, builds the virtual engine's kernel
# once, and runs one flow against twelve in a k=4 fat-tree at 1 Gbps (figure 3(c) of the paper). It
# prints who got what, and says where the figures are. In virtual time the lone flow starves. If that
# engine cannot run, the realtime engine does, and there the outcome depends on the machine. A user who
# cannot become root gets the virtual engine alone, which needs python3-venv.
# Usage: scripts/demo.sh [OPTION OF outcast run]...
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! .venv/bin/outcast guest info >/dev/null 2>&1; then
    echo "demo: first comes the installation: one to five minutes, most of it for Python packages."
    shopt -s nullglob
    kernels=("${XDG_CACHE_HOME:-${HOME-}/.cache}"/outcast/kernels/*/linux wheels/outcast_guest-*.whl)
    if [ ${#kernels[@]} -gt 0 ]; then
        echo "demo: a kernel of the virtual engine is there: ${kernels[0]}; another is built only if this version needs it."
    else
        echo "demo: then the virtual engine's kernel is built, once: 5 to 15 minutes on two cores."
    fi
    shopt -u nullglob
    echo "demo: meanwhile, this is what an earlier run said:"
    sed -n '/^fig3c: virtual/,/captures and counters agree/s/^/    /p' docs/first-run.md
    cat <<'MEANING'
demo: a lone flow comes in by e0_0-eth2, twelve by e0_0-eth4, and all leave by one port of 1 Gbps, which
      holds 16 KB. The lone flow has the shortest way. Yet each of the others gets several times as
      much, because the queue drops its packets in a row (blackouts) and it waits for timeouts.
      docs/images/goodput.png shows it over time. Such a table, such figures and a report come half a
      minute after the installation and the kernel. docs/first-run.md says what each line means.
MEANING
    [ -z "${DISPLAY:-}" ] || xdg-open docs/images/goodput.png >/dev/null 2>&1 || true
fi
only=()
if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
    echo "demo: without root or sudo, so for the virtual engine alone"
    only=(--virtual)
fi
scripts/install.sh "${only[@]}"
ours=$(.venv/bin/python -c 'import json, polars
results = dict(polars.read_parquet("docs/results/reproduction.parquet").iter_rows())
claim = json.loads(results["P3"])["claims"][0]
print("{median:.3g} [{low:.3g}, {high:.3g}]".format(**claim))') || ours="another one"
echo "demo: the paper's ratio is 7; ten seeds give $ours here (P3 in docs/reproduction-p.md); this run is one draw"
status=0
.venv/bin/outcast run configs/fig3c.yaml "$@" || status=$?
if [ "$status" -eq 0 ]; then
    echo "demo: done. Open the report above in a browser. docs/first-run.md says what each line means."
    echo "demo: with fewer rivals: .venv/bin/outcast run configs/fig3c.yaml --set flows.1.hosts=6"
fi
exit "$status"
