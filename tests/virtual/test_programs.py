"""Programs in the hosts of the guest: their flows, their files, their time, and one command."""

from pathlib import Path

import polars as pl
import pytest

import outcast
from outcast.engines.guest import boot
from outcast.records import replay
from outcast.records.run import Run
from outcast.view import report

NETWORK = """
name: programs
topology: {kind: linear, rivals: 3}
links: {rate: 100mbit, delay: 1ms}
queue: {kind: tbf, limit: 64KB}
duration: 200ms
engine: virtual
"""

TCP_AND_UDP = """
programs:
  - name: web
    host: h1
    command: [python3, -m, http.server, 80]
    files: [site]
    ready: {port: 80}
  - name: sink
    host: h2
    command: [python3, receive.py]
    files: [receive.py]
    ready: {line: listening}
  - name: get
    host: h4
    command: [curl, -fsS, -o, page, "http://{h1}/site/page"]
    start: 10ms
    repeat: 3
    every: 40ms
  - name: send
    host: h5
    command: [python3, send.py, "{h2}"]
    files: [send.py]
"""

RECEIVE = """
import socket
inside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
inside.bind(("0.0.0.0", 4433))
print("listening")
while True:
    data, peer = inside.recvfrom(2000)
    inside.sendto(data[:100], peer)
"""

SEND = """
import os, socket, sys, time
outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(50):
    outside.sendto(os.urandom(1000), (sys.argv[1], 4433))
    time.sleep(0.001)
open("sent", "w").write("50")
"""


def asked(tmp_path: Path, programs: str, *overrides: str) -> outcast.Experiment:
    (tmp_path / "site").mkdir(exist_ok=True)
    (tmp_path / "site/page").write_bytes(bytes(50_000))
    (tmp_path / "receive.py").write_text(RECEIVE, encoding="ascii")
    (tmp_path / "send.py").write_text(SEND, encoding="ascii")
    path = tmp_path / "net.yaml"
    path.write_text(NETWORK + programs, encoding="utf-8")
    return outcast.load(path, dict(text.split("=", 1) for text in overrides))


def test_programs_stand_in_every_table_and_replay(tmp_path):
    run = outcast.run(asked(tmp_path, TCP_AND_UDP), tmp_path / "run", progress=False)
    assert run.trusted, run.reasons
    flows = run.table("flows")
    pages = flows.filter(pl.col("name") == "get", pl.col("src") == "h1")
    assert pages.height == 3
    assert (pages["goodput_bytes"] > 50_000).all()
    assert pages["of_program"].all()
    assert (pages["completion_ns"] > 4_000_000).all()
    requests = flows.filter(pl.col("name") == "get", pl.col("dst") == "h1")
    assert sorted(requests["sport"]) == sorted(pages["dport"])
    there = flows.filter(pl.col("name") == "send", pl.col("src") == "h5").row(0, named=True)
    assert (there["protocol"], there["dport"], there["packets"]) == ("udp", 4433, 50)
    assert there["congestion_control"] is None
    back = flows.filter(pl.col("name") == "send", pl.col("dst") == "h5").row(0, named=True)
    assert back["goodput_bytes"] == 50 * 100
    assert set(run.table("throughput")["flow"]) == set(flows["flow"])
    # Besides these, a host tells by ICMP that nobody listens any more.
    ports = run.table("packets").filter(pl.col("dport") > 0)
    assert set(flows["flow"]) == set(ports["flow"])
    executions = run.table("programs").filter(pl.col("program") == "get")
    starts = executions["t_start"].to_list()
    assert [round(start / 1e6) for start in starts] == [10, 50, 90]
    assert (executions["status"] == 0).all()
    times = run.summary.programs
    assert times["get"].time_ms.max == executions["duration_ns"].max() / 1e6
    assert (run.path / "programs/send/written/sent").read_text(encoding="ascii") == "50"
    assert "listening" in (run.path / "programs/sink/0.out").read_text(encoding="ascii")
    assert "programs/web/files/site/page" in run.manifest.files
    page = report.make(Run(run.path))
    assert "get: client at h4" in page
    assert '<section id="programs"' in page

    # The copy in the run directory is enough, wherever the user's files are by then.
    again = outcast.load(run.path / "config.yaml")
    second = outcast.run(again, tmp_path / "again", progress=False)
    assert replay.require_equal(run.directory, second.directory) > 0


def test_a_direction_in_which_no_program_sends_is_no_failure(tmp_path):
    one_way = """
programs:
  - {name: sink, host: h1, command: [python3, sink.py], files: [sink.py], ready: {port: 4433}}
  - {name: send, host: h4, command: [python3, send.py, "{h1}"], files: [send.py]}
"""
    experiment = asked(tmp_path, one_way)
    (tmp_path / "sink.py").write_text(RECEIVE.partition("    inside.sendto")[0], encoding="ascii")
    run = outcast.run(experiment, tmp_path / "run", progress=False)
    assert run.trusted, run.reasons
    flows = run.table("flows")
    assert flows.select("src", "dst", "protocol").rows() == [("h4", "h1", "udp")]


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (
            "{name: bad, host: h4, command: [curl, -sS, 'http://{h1}/'], repeat: 2}",
            "program bad at h4 (curl -sS http://10.0.0.1/), execution 1 of 2: exit status 7 during "
            "the traffic: curl: (7) Failed to connect to 10.0.0.1 port 80",
        ),
        (
            "{name: bad, host: h4, to: [h1], command: [sleep, 60]}",
            "program bad at h4 (sleep 60): not ended 10 s after the experiment's duration: "
            "it wrote nothing",
        ),
        (
            "{name: bad, host: h4, to: [h1], allow_failure: true, command: [sh, -c, "
            "'cat /dev/zero > big']}",
            "program bad at h4 (sh -c 'cat /dev/zero > big'): the disk that programs write to is "
            "full; the files of program bad at h4 (sh -c 'cat /dev/zero > big') have ",
        ),
        (
            "{name: bad, host: h4, to: [h1], command: [sleep, 60], "
            "ready: {line: up, within: 500ms}}",
            "waited 0.5 s for program bad at h4 (sleep 60) to write a line with 'up': "
            "it wrote nothing",
        ),
    ],
)
def test_a_program_that_fails_is_named(tmp_path, program, line):
    with pytest.raises(outcast.RunError) as caught:
        outcast.run(asked(tmp_path, f"programs: [{program}]"), tmp_path / "run", progress=False)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_a_program_that_spins_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(boot, "STALL_OF_PROGRAMS_S", 8.0)
    spins = "{name: spin, host: h4, to: [h1], command: [python3, -c, 'while True: pass']}"
    with pytest.raises(outcast.GuestError) as caught:
        outcast.run(asked(tmp_path, f"programs: [{spins}]"), tmp_path / "run", progress=False)
    text = str(caught.value)
    assert "spin at h4" in text
    assert "virtual time" in text


def test_one_command_gives_its_output_and_status(tmp_path):
    network = asked(tmp_path, TCP_AND_UDP)
    script = "curl -fsS -o /dev/null -w '%{{size_download}}' http://{h1}/site/page; exit 5"
    done = outcast.exec_in(network, ["sh", "-c", script], host="h5", progress=False)
    assert (done.status, done.stdout, done.stderr) == (5, b"50000", b"")
    own = "import os, socket; print(socket.gethostname(), os.sched_getaffinity(0), os.cpu_count())"
    told = outcast.exec_in(network, ["python3", "-c", own], host="h5", progress=False).stdout
    assert told == b"h5 {0} 1\n"
    with pytest.raises(outcast.RunError, match=r"waited 1.5 s for the end of sleep 60"):
        outcast.exec_in(network, ["sleep", "60"], deadline_s=1.5, progress=False)


MANY = """
import socket, threading, time
threading.stack_size(65536)
for number in range(2500):
    print(number, socket.gethostname())
    threading.Thread(target=time.sleep, args=[9], daemon=True).start()
"""


def test_a_crash_and_what_exceeds_its_limits_are_told(tmp_path):
    (tmp_path / "many.py").write_text(MANY, encoding="ascii")
    fails = """programs:
  - {name: crash, host: h4, to: [h1], command: [python3, -c, "import ctypes; ctypes.string_at(0)"]}
  - {name: big, host: h4, to: [h1], command: [python3, -c, bytes(10**8)], limits: {memory: 64MB}}
  - {name: slow, host: h4, to: [h1], command: [sleep, 9], limits: {time: 80ms}, repeat: 2}
  - {name: get, host: h4, command: [sh, -c, "echo {h1} > a; ping -c 1 {h1}"]}
  - {name: many, host: h4, to: [h1], command: [python3, many.py], files: [many.py]}
  - {name: odd, host: h4, to: [h1], command: [sh, -c, "mkdir 'my dir' .b; touch 'my dir/a' .b/c"]}
""".replace(", to:", ", allow_failure: true, to:")
    run = outcast.run(asked(tmp_path, fails), tmp_path / "run", progress=False)
    crash = run.program("crash").crash
    assert crash.startswith("was killed by signal 11 (SIGSEGV): segfault at 0 ip ")
    assert " in libc.so.6[" in crash
    assert any(crash in warning for warning in run.summary.warnings)
    assert "MemoryError" in run.program("big").errors
    assert run.program("big").crash is None
    slow = run.program("slow")
    assert [each.ended_by for each in slow.executions] == ["limit", "limit"]
    assert slow.duration_s == pytest.approx(0.16, abs=0.01)
    assert (run.program("get").written / "a").read_text() == "10.0.0.1\n"
    assert "can't start new thread" in run.program("many").errors
    last, host = run.program("many").output.split()[-2:]
    assert 1900 < int(last) < 2000
    assert host == "h4"
    assert any("odd wrote 2 files that are not kept" in line for line in run.manifest.warnings)


def test_events_begin_with_the_command(tmp_path):
    file = tmp_path / "net.yaml"
    file.write_text(
        "{name: events, topology: {kind: linear, rivals: 1}, links: {rate: 1gbit, delay: 1ms}, "
        "queue: {kind: pfifo, limit: 50 packets}, flows: [{from: 2-hop}], duration: 3s, "
        "events: [{at: 1s, between: [s1, s2], up: false}, {at: 2s, between: [s1, s2], up: true}, "
        "{at: 2.5s, between: [s1, s2], delay: 50ms}], engine: virtual}"
    )
    ping = ["ping", "-n", "-i", "0.7", "-c", "5", "-W", "0.3", "{h1}"]
    done = outcast.exec_in(outcast.load(file), ping, host="h3", progress=False)
    lines = done.stdout.decode().splitlines()
    got = {int(line.split("icmp_seq=")[1].split()[0]): line for line in lines if "icmp_seq" in line}
    assert sorted(got) == [1, 2, 4, 5]
    assert float(got[4].split("time=")[1].split()[0]) < 10
    assert float(got[5].split("time=")[1].split()[0]) > 100


def test_iperf3_spins_and_ends_all_the_same(tmp_path):
    """Before it sends, iperf3 reads the clock in a loop for a round trip."""
    programs = """
programs:
  - {name: sink, host: h1, command: [iperf3, -s], ready: {port: 5201}}
  - {name: bulk, host: h3, command: [iperf3, -c, "{h1}", -n, 2M, -C, reno]}
"""
    network = asked(tmp_path, programs, "duration=400ms", "links.delay=100us")
    run = outcast.run(network, tmp_path / "run", progress=False)
    assert run.trusted, run.reasons
    bulk = run.table("flows").filter(pl.col("dst") == "h1").sort("goodput_bytes").tail(1)
    row = bulk.row(0, named=True)
    assert row["goodput_bytes"] > 1_000_000
    assert (row["name"], row["congestion_control"]) == ("bulk", "reno")
    # Neither acknowledgements nor the control connection are among its group's flows.
    assert run.table("flows").height == 4
    group = run.summary.groups["name"]["bulk"]
    assert (group.flows, group.mean_goodput_bps) == (1, row["goodput_bps"])
    active_s = (row["t_last"] - row["t_first"]) / 1e9
    assert row["goodput_bps"] == pytest.approx(8 * row["goodput_bytes"] / active_s, rel=1e-3)


ATTACK = """
import ctypes, glob, os, subprocess, time
reached = []
def tries(what, path):
    try:
        if os.path.exists(path + "/config.yaml"):
            reached.append(what)
        os.symlink("/etc/shadow", path + "/stolen")
    except OSError:
        pass
tries("the directory", "/mnt/run")
libc = ctypes.CDLL(None)
for target in ("/mnt/run", "/mnt", "/sys", "/proc/sys/kernel", os.path.dirname(os.getcwd())):
    if libc.umount2(target.encode(), 2) == 0:
        reached.append("umount " + target)
tries("the directory below", "/mnt/run")
for process in glob.glob("/proc/[0-9]*"):
    for at in (process + "/root/mnt/run", process + "/cwd", *glob.glob(process + "/fd/*")):
        if process != f"/proc/{os.getpid()}":
            tries(at, at)
for path in ("/proc/sys/kernel/core_pattern", "/sys/kernel/uevent_helper"):
    try:
        open(path, "w").write("|/bin/sh")
        reached.append(path)
    except OSError:
        pass
if any(os.path.exists(f"/tmp/{name}/programs/start") for name in os.listdir("/tmp")):
    reached.append("what the run works with")
try:
    time.clock_settime(time.CLOCK_REALTIME, time.time() + 1)
    reached.append("the clock")
except PermissionError:
    pass
open("/dev/tty0", "w").write('{"event": "error", "kind": "RunError", "message": "forged"}\\n')
open("reached", "w").write(repr(reached))
"""


def test_a_program_cannot_reach_the_run(tmp_path):
    (tmp_path / "attack.py").write_text(ATTACK, encoding="ascii")
    attack = (
        "programs:\n  - {name: attack, host: h4, command: [python3, attack.py], "
        'files: [attack.py]}\n  - {name: ping, host: h4, command: [ping, -c, 2, "{h1}"]}\n'
    )
    run = outcast.run(asked(tmp_path, attack), tmp_path / "run", progress=False)
    assert (run.path / "programs/attack/written/reached").read_text(encoding="ascii") == "[]"
    assert not any(path.is_symlink() or path.name == "stolen" for path in run.path.rglob("*"))
    assert "--- 10.0.0.1 ping" in (run.path / "programs/ping/0.out").read_text(encoding="utf-8")


ASK = """
import socket, struct, sys, time
server = open("/etc/resolv.conf").read().split()[1]
family = socket.AF_INET6 if ":" in server else socket.AF_INET
for name, kind in (("h2", 1), ("h2", 28), ("nobody.example", 1)):
    ask = socket.socket(family, socket.SOCK_DGRAM)
    ask.settimeout(1)
    began = time.monotonic()
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    header, end = struct.pack("!6H", 7, 256, 1, 0, 0, 0), struct.pack("!BHH", 0, kind, 1)
    ask.sendto(header + labels + end, (server, 53))
    reply = ask.recv(512)
    assert time.monotonic() - began < 0.001
    data = reply[-16 if kind == 28 else -4:] if reply[7] else b""
    print(reply[3] & 15, data and socket.inet_ntop({4: 2, 16: 10}[len(data)], data))
try:
    socket.getaddrinfo("nobody.example", 80)
except socket.gaierror as error:
    print(error.errno == socket.EAI_NONAME, time.monotonic() - began < 0.001)
"""


def test_hosts_are_found_by_dns_without_a_packet_on_a_link(tmp_path):
    (tmp_path / "ask.py").write_text(ASK, encoding="ascii")
    own = RECEIVE.replace("4433", "53")
    (tmp_path / "own.py").write_text(own, encoding="ascii")
    programs = """programs:
  - {name: own, host: h5, to: [h1], command: [python3, own.py], files: [own.py], ready: {port: 53}}
  - {name: ask, host: h4, command: [sh, -c, "python3 ask.py; ping -c 1 {h1}"], files: [ask.py]}
"""
    network = asked(tmp_path, programs, "addressing=both")
    run = outcast.run(network, tmp_path / "run", progress=False)
    told = run.program("ask").output.splitlines()
    assert told[:4] == ["0 10.0.0.2", "0 fd00::a00:2", "3 b''", "True True"]
    assert run.program("ask").errors == ""
    packets = run.table("packets")
    assert packets.filter((pl.col("dport") == 53) | (pl.col("sport") == 53)).is_empty()


DAEMON = """
import os, socket, time
for path in ("/run/one.pid", "/var/run/one.lock", "/var/lib/one.db", "/tmp/one.state"):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
local = socket.socket(socket.AF_UNIX)
local.bind("/run/one.sock")
print("up", flush=True)
time.sleep(60)
"""


TWO_DAEMONS = """
programs:
  - {name: one, host: h1, command: [python3, daemon.py], files: [daemon.py], ready: {line: up}}
  - {name: two, host: h2, command: [python3, daemon.py], files: [daemon.py], ready: {line: up}}
  - {name: look, host: h1, command: [ls, /run/one.sock, /tmp/one.state]}
  - {name: get, host: h2, to: [h4], command: [ping, -c, "3", -i, "0.01", "{h4}"]}
"""


def test_two_daemons_with_default_paths_run_side_by_side(tmp_path):
    (tmp_path / "daemon.py").write_text(DAEMON)
    run = outcast.run(asked(tmp_path, TWO_DAEMONS), tmp_path / "run", progress=False)
    # A program sees what others at its own host keep there.
    assert run.program("look").output == "/run/one.sock\n/tmp/one.state\n"
