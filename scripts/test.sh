#!/usr/bin/env bash
# Installs, then runs every check; exits non-zero if any fails.
# Usage: scripts/test.sh [format|lint|types|docs|unit|browser|emulation|virtual|physics|elsewhere]...   (default: all of them; the unit tests run as a part of `elsewhere` then)
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$PWD/.venv/bin
# Without bytecode every process of pytest would read and rewrite the same 700 modules again.
unset PYTHONDONTWRITEBYTECODE

# The parts that need the kernel wait here for the build that has begun beside the others.
kernel() { "$bin/outcast" guest info >/dev/null 2>&1 || scripts/guest/build; }

run() {
    case $1 in
        format) "$bin/ruff" format --check . ;;
        lint) "$bin/ruff" check . ;;
        types) "$bin/mypy" ;;
        docs) site=$(mktemp -d) && scripts/docs.sh "$site" && rm -r "$site" ;;
        # Files run side by side; the tests of one file stay together, because they may share things.
        unit) "$bin/pytest" -n "$(nproc)" --dist loadfile tests/unit ;;
        browser) "$bin/pytest" tests/browser ;;
        # Some tests start the virtual engine, and none should wait for a kernel to be built.
        emulation) kernel && "$bin/pytest" tests/emulation ;;
        virtual)
            kernel &&
                "$bin/pytest" -n "$(nproc)" --dist loadfile --no-loadscope-reorder \
                    --durations 20 tests/virtual
            ;;
        # Experiments with known answers; `python -m tests.physics.run` has all of them.
        physics) kernel && "$bin/pytest" -n "$(nproc)" tests/physics ;;
        # Under conditions that differ from this checkout's, as on other machines.
        elsewhere) scripts/test-elsewhere.sh ;;
    esac
}

parts=("$@")
[ $# -gt 0 ] || parts=(format lint types docs browser elsewhere emulation virtual physics)
for part in "${parts[@]}"; do
    case $part in
        format | lint | types | docs | unit | browser | emulation | virtual | physics | elsewhere) ;;
        *) sed -n '3s/^# //p' "$0" >&2; exit 2 ;;
    esac
done

scripts/install.sh || exit 1
# It takes minutes on an empty cache, and the first parts leave a core idle. A part that needs
# the kernel says what went wrong.
case " ${parts[*]} " in
    *" emulation "* | *" virtual "* | *" physics "* | *" elsewhere "*)
        nice scripts/guest/build >/dev/null 2>&1 &
        trap "kill $! 2>/dev/null" EXIT
        ;;
esac
# Real time waits most of its time, so `emulation` goes on beside `elsewhere` and is reported after it. They
# share nothing: the one runs as nobody, in its own cache and without any network of this machine.
beside=
case " ${parts[*]} " in *" elsewhere emulation "*) beside=$(mktemp) ;; esac
failed=()
for part in "${parts[@]}"; do
    if [ -n "$beside" ] && [ "$part" = elsewhere ]; then
        run emulation >"$beside" 2>&1 &
        emulation=$!
    fi
    printf '\n== %s\n' "$part"
    if [ -n "$beside" ] && [ "$part" = emulation ]; then
        wait "$emulation" || failed+=("$part")
        cat "$beside"
        rm "$beside"
    else
        run "$part" || failed+=("$part")
    fi
done
if [ ${#failed[@]} -gt 0 ]; then
    printf '\ntest: failed: %s\n' "${failed[*]}" >&2
    exit 1
fi
printf '\ntest: all passed: %s\n' "${parts[*]}"
