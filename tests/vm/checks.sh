#!/usr/bin/env bash
# Checks what must hold on a stock machine. scripts/test-vm.sh boots one and runs this there, as root,
# on a checkout that belongs to a user with sudo. All output goes to one log. A line `== NAME SECONDS`
# begins a check and has its deadline. `PASS NAME SECONDS` or `FAIL NAME SECONDS` ends it. The last
# line is `N passed, N failed`.
# Usage: tests/vm/checks.sh [NAME]...
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
self=$PWD/tests/vm/checks.sh
user=$(stat -c %U .)

# Every check with its deadline in seconds, for TCG on two cores that others also use.
checks=(
    machine:300 install:3600 doctor:1200 doctor-as-root:1200
    realtime-bic:1800 realtime-dctcp:1800 realtime-netem:1800 realtime-red:1800 realtime-sfq:1800
    h3:2400 virtual:5400 golden:7200 demo:7200 killed-realtime:3600 killed-virtual:7200
)

# Runs a command as after a login, with the machine's default limits for this user.
as_user() {
    local command
    printf -v command '%q ' "$@"
    su --login "$user" -c "cd $(printf %q "$PWD") && exec $command"
}

# holds FILE EXPRESSION: checks a Python expression on the document in a JSON file.
holds() {
    /usr/bin/python3 -I -c '
import json, sys
path, expression = sys.argv[1:]
if not eval(expression, {"document": json.load(open(path))}):
    sys.exit(f"{path}: not so: {expression}")
' "$1" "$2"
}

check_machine() {
    . /etc/os-release
    echo "$PRETTY_NAME, Linux $(uname -r), $(nproc) CPUs"
    free -m
    lsmod
    as_user bash -c 'id; ulimit -a; env; df -h /dev/shm /tmp .'
    [ "$(as_user id -u)" -ne 0 ]
    [ "$(as_user bash -c 'ulimit -Sn')" -eq 1024 ]
    [ "$(as_user sudo id -u)" -eq 0 ]
}

# The packages are already there.
check_install() {
    as_user scripts/install.sh | tee /tmp/outcast-install.log
    grep -q 'system packages: all' /tmp/outcast-install.log
    grep -q 'Open vSwitch: running' /tmp/outcast-install.log
    grep -q 'Python packages: as locked' /tmp/outcast-install.log
}

# doctor COMMAND...: checks that both engines run here, with every module of the distribution's kernel.
doctor() {
    local found=/tmp/outcast-doctor.json
    "$@" doctor
    "$@" doctor --json >"$found"
    holds "$found" '[
        f"{kind} {name}" for kind, names in {
            "congestion control": ["bic", "cubic", "reno", "dctcp", "bbr"],
            "qdisc": ["tbf", "htb", "red", "sfq", "fq", "codel", "fq_codel", "pie", "cake", "netem"],
            "Open vSwitch": ["kernel module"],
        }.items() for name in names
        if not any(
            each["feature"] == f"{kind} {name}" and each["present"]
            for each in document["features"]
        )
    ] == []'
    holds "$found" 'document["engines"]["virtual"]'
}

check_doctor() { doctor as_user .venv/bin/outcast; }

check_doctor_as_root() {
    doctor as_user sudo .venv/bin/outcast
    holds /tmp/outcast-doctor.json 'document["engines"]["realtime"]'
}

small_virtual=(configs/fig3c.yaml --engine virtual --set duration=100ms
    --set 'analysis.windows=[100ms]')
# The rate is one that an emulated processor can hold.
small_realtime=(configs/linear-12.yaml --engine realtime --set topology.rivals=2
    --set flows.1.hosts=2 --set links.rate=10mbit --set duration=2s --set 'analysis.windows=[1s,2s]')

# Exit status 0 already says so, and so must the result.
trusted() {
    holds "$1/summary.json" 'document["capture"]["trusted"]'
    holds "$1/summary.json" "document['engine'] == '$2'"
    [ -s "$1/report.html" ]
}

check_virtual() {
    as_user .venv/bin/outcast run "${small_virtual[@]}" -o results/virtual
    trusted results/virtual virtual
}

# Whether the golden runs give the same captures here, without their analysis.
check_golden() { as_user .venv/bin/python -m tests.golden.replays --engine-only; }

# The demo ends with the report and says that figures are beside it.
check_demo() {
    as_user sudo scripts/demo.sh -o results/demo | tee /tmp/outcast-demo.log
    grep -q 'results/demo/report.html, with .* figures' /tmp/outcast-demo.log
    [ -s results/demo/goodput.png ]
    trusted results/demo virtual
}

# realtime NAME CONGESTION-CONTROL QDISC OPTION...: a run through the kernel's own datapath.
realtime() {
    local result=results/$1 congestion_control=$2 qdisc=$3
    shift 3
    as_user sudo .venv/bin/outcast run "${small_realtime[@]}" \
        --set transport.congestion_control="$congestion_control" "$@" -o "$result"
    trusted "$result" realtime
    holds "$result/manifest.json" 'document["datapath"] == "system"'
    holds "$result/manifest.json" \
        "document['effective']['ipv4.tcp_congestion_control'] == '$congestion_control'"
    holds "$result/manifest.json" "'$qdisc' in [value for key, value in
        document['effective'].items() if key.startswith('bottleneck.qdisc')]"
}

check_realtime_bic() { realtime bic bic tbf; }

# H3 (docs/findings.md): a machine that is too slow for the rate has to say so.
check_h3() {
    local queue number=0
    for queue in '{kind: tbf, limit: 16KB}' '{kind: tbf, limit: 128KB}' '{kind: htb, limit: 11 packets}'; do
        number=$((number + 1))
        as_user sudo .venv/bin/outcast run configs/linear-12.yaml --engine realtime \
            --set transport.congestion_control=bic --set duration=4s \
            --set 'analysis.windows=[2s,4s]' --set "queue=$queue" -o "results/h3-$number"
        holds "results/h3-$number/summary.json" \
            "(document['noise']['s1-eth1']['mean_of_nominal'] < 1.02
            or any('less than its rate' in warning for warning in document['warnings']))"
    done
}

check_realtime_dctcp() {
    realtime dctcp dctcp red --set transport.ecn=true \
        --set 'queue={kind: ecn_threshold, limit: 64KB, threshold: 8KB}'
}

check_realtime_netem() { realtime netem cubic netem --set links.delay=5ms; }

check_realtime_red() { realtime red cubic red --set 'queue={kind: red, limit: 64KB}'; }

check_realtime_sfq() { realtime sfq cubic sfq --set 'queue={kind: sfq, limit: 40 packets}'; }

# Lists everything that a run could leave on the machine, one thing a line.
left_on_the_machine() {
    ip -o link | cut -d : -f 2
    ip netns
    tc qdisc
    ovs-vsctl --timeout=10 list-br
    cat /proc/sys/net/ipv4/tcp_allowed_congestion_control /proc/sys/net/core/netdev_tstamp_prequeue
    pgrep -l -x 'iperf|tcpdump|linux|ovs-vswitchd|ovsdb-server' || true
    pgrep -l -f 'outcast[.](engines|emulation)' || true
    find /tmp /var/tmp /dev/shm results -maxdepth 1 ! -name 'systemd-*' | sort
    # Only a run makes the first one.
    [ ! -d /run/outcast ] || find /run/outcast -name '*.json'
    find /run/user -name '*.json'
}

# killed NAME PREFIX OPTION...: kills a run in its traffic. The next run must work, and `clean` must find
# the rest.
killed() {
    local name=$1 log=/tmp/outcast-killed.log before=/tmp/outcast-before after=/tmp/outcast-after end pid
    local prefix=()
    read -r -a prefix <<<"$2"
    shift 2
    touch "$log" "$before" "$after"
    left_on_the_machine >"$before"
    as_user "${prefix[@]}" .venv/bin/outcast run "$@" -o "results/$name" >"$log" 2>&1 &
    end=$((SECONDS + 1800))
    until grep -q 'flows are running: ' "$log"; do
        [ $SECONDS -lt $end ] && kill -0 $! 2>/dev/null || { cat "$log"; echo "no traffic came"; return 1; }
        sleep 1
    done
    # Only the command itself, not sudo and not what it started.
    pid=$(pgrep -o -f "^[^ ]*python[^ ]* [^ ]*outcast run .*results/$name")
    kill -KILL "$pid"
    wait || true
    cat "$log"
    # The result's place is held from the start, and a killed run left nothing in it.
    [ -z "$(ls -A "results/$name")" ]
    as_user "${prefix[@]}" .venv/bin/outcast run "$@" -o "results/$name-again"
    as_user "${prefix[@]}" .venv/bin/outcast clean
    as_user "${prefix[@]}" .venv/bin/outcast clean | grep -x 'nothing was left behind'
    rm -r "results/$name-again"
    left_on_the_machine >"$after"
    diff "$before" "$after"
}

check_killed_realtime() { killed killed-realtime sudo "${small_realtime[@]}"; }

check_killed_virtual() { killed killed-virtual "" "${small_virtual[@]}"; }

# Each check has a process of its own, so that it can be ended at its deadline.
if [ "${1:-}" = --alone ]; then
    "check_${2//-/_}"
    exit
fi

passed=0 failed=0
for check in "${checks[@]}"; do
    name=${check%:*} deadline_s=${check#*:}
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    echo "== $name $deadline_s"
    began=$SECONDS status=0
    timeout --kill-after=10 "$deadline_s" "$self" --alone "$name" || status=$?
    if [ $status -eq 0 ]; then
        passed=$((passed + 1))
        echo "PASS $name $((SECONDS - began))"
    else
        failed=$((failed + 1))
        # su(1) runs a command in a session of its own, which the deadline does not end.
        loginctl terminate-user "$user" || true
        journalctl --no-pager --lines=20
        echo "FAIL $name $((SECONDS - began)): status $status"
    fi
done
echo "$passed passed, $failed failed"
