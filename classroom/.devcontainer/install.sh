#!/usr/bin/env bash
# Installs outcast and its guest from wheels/ into ~/.outcast, without root. Then it makes one short run.
# That makes ready what is made once for each user, and shows that this machine can run the exercises.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=$HOME/.outcast

say() { printf 'install: %s (%s s)\n' "$*" "$SECONDS"; }
die() { printf 'install: error: %s\n' "$*" >&2; exit 1; }

machine=$(uname -m)
[ "$machine" = x86_64 ] || die "this machine's processor is $machine, and the guest's kernel runs on" \
    "x86_64 only; open the class in GitHub Codespaces, or see the page Anywhere of outcast's documentation"
wheels=(wheels/outcast_testbed-*.whl wheels/outcast_guest-*.whl)
for wheel in "${wheels[@]}"; do
    [ -f "$wheel" ] || die "$wheel is missing; outcast's scripts/classroom.sh puts it there"
done

python3 -m venv "$venv"
say "fetching libraries from the Python package index"
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-input \
    --constraint wheels/constraints.txt "${wheels[@]}" ipykernel
say "unpacking the guest, compiling the analysis"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$venv/bin/outcast" run configs/fig3c.yaml --engine virtual --set duration=50ms \
    --set 'analysis.windows=[50ms]' -o "$work/run" >"$work/log" 2>&1 \
    || { cat "$work/log" >&2; die "a first run failed; its output is above"; }
say "a first run was made; captures and counters agree. Ready: outcast run configs/fig3c.yaml -o results/fig3c"
