#!/usr/bin/env bash
# Runs programs that nobody here wrote in the guest, many times under load, and compares their captures
# to the byte: quic-go (Go), quinn (Rust), aioquic (Python), the HTTP clients of the JDK and of Node,
# iperf3, and nginx with curl. The languages' own package managers fetch them, at pinned versions, into
# ~/.cache/outcast/tested; our drivers stand in tests/programs/. First, examples/ci in Go and Rust.
# This machine needs go, cargo, javac and node (Debian: golang cargo default-jdk-headless nodejs).
# This script is not part of scripts/test.sh.
# Usage: scripts/test-programs.sh [TIMES [NAME...]]     (100 times, all of them)
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
drivers=$repo/tests/programs
made=${XDG_CACHE_HOME:-$HOME/.cache}/outcast/tested

[[ ${1:-100} =~ ^[1-9][0-9]*$ ]] || { sed -n 's/^# Usage: /usage: /p' "$0" >&2; exit 2; }
for program in go cargo javac node; do
    command -v "$program" >/dev/null || { echo "test-programs: error: $program is missing" >&2; exit 1; }
done

export PATH="$repo/.venv/bin:$PATH"
(cd "$repo/examples/ci/go" && go test -count=1 ./...)
(cd "$repo/examples/ci/rust" && CARGO_TARGET_DIR="$made/cargo" cargo test --offline)

mkdir -p "$made"
CGO_ENABLED=0 go build -C "$drivers/quic-go" -trimpath -o "$made/quic-go" .
CARGO_TARGET_DIR="$made/cargo" cargo build -q --release --locked --manifest-path "$drivers/quinn/Cargo.toml"
cp "$made/cargo/release/transfer" "$made/quinn"
[ -x "$made/aioquic/bin/python" ] || python3 -m venv "$made/aioquic"
"$made/aioquic/bin/pip" install -q --disable-pip-version-check -r "$drivers/aioquic/requirements.txt"
javac -d "$made" "$drivers/java/Get.java"

exec "$repo/.venv/bin/python" -P "$drivers/again.py" "$made" "$@"
