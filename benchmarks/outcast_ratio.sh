#!/usr/bin/env bash
# The outcast ratio for 2, 6 and 12 rivals in both topologies, five repetitions each, in real time.
#   sudo benchmarks/outcast_ratio.sh [-s KEY=VALUE]... [-r REPETITIONS] FOLDER
# Prints one line a run: topology, rivals, repetition, outcast ratio, mean goodput per class (Mbps),
# Jain's index, drops inferred and counted, seconds beyond the flows' duration.
set -euo pipefail
cd "$(dirname "$0")/.."
overrides=()
repetitions=5
while getopts s:r: option; do
  case $option in
    s) overrides+=(--set "$OPTARG") ;;
    r) repetitions=$OPTARG ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
folder=${1:?a folder for the runs}
mkdir -p "$folder"
for repetition in $(seq "$repetitions"); do
  for topology in linear fattree; do
    for rivals in 2 6 12; do
      target=$folder/$topology-$rivals-$repetition
      settings=(--set "flows.1.hosts=$rivals" --set "seed=$repetition")
      [ "$topology" = fattree ] || settings+=(--set "topology.rivals=$rivals")
      began=$(date +%s.%N)
      .venv/bin/outcast run "configs/$topology-12.yaml" "${settings[@]}" "${overrides[@]}" \
        -o "$target" >/dev/null 2>"$target.log" || { tail -n 1 "$target.log"; continue; }
      overhead=$(echo "$(date +%s.%N) - $began - 10" | bc)
      jq -r --arg where "$topology $rivals $repetition" --arg overhead "$overhead" '
        [$where, (.outcast_ratio * 1000 | round / 1000),
         (.classes | to_entries | map("\(.key)-hop \(.value.mean_goodput_bps / 1e4 | round / 100)")
          | join(" ")),
         (.jain_index * 1000 | round / 1000), .capture.inferred_drops, .capture.qdisc_drops,
         ($overhead | tonumber * 10 | round / 10)] | map(tostring) | join("\t")' \
        "$target/summary.json"
    done
  done
done
