"""Routers and bridges in namespaces, captured as docs/own-captures.md says, with what they dropped.

    python -m tests.emulation.hops FOLDER router

As root. A and B are hosts that send to R, and R sends to A, each behind a port of a hop: `pA`,
`pB`, `pR`. FOLDER then has `A.pcap`, `B.pcap`, `R.pcap`, and `truth.json`: what tc and nft counted
as dropped.
"""

import argparse
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HOSTS = {"A": 1, "B": 2, "R": 3}
PORT = 5001
RATE = "50mbit"
BACK = "20mbit"
SECONDS = 1.0
DEADLINE_S = 60.0
OWN_CLASS = 0x0001_0020
"""The HTB class of what the hop itself sends: a socket's priority may name it (tc-htb(8))."""
FILTER = "ip or ip6"
ISOLATED = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""What begins a command in namespaces of its own."""


def v4(host: str) -> str:
    """A host's IPv4 address."""
    return f"10.7.{HOSTS[host]}.2"


def v6(host: str) -> str:
    """A host's IPv6 address."""
    return f"fd00:7:{HOSTS[host]}::2"


def command(*words: str) -> str:
    """Runs a command. Returns what it writes."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout


def inside(host: str) -> list[str]:
    """What begins a command in a host."""
    return ["ip", "netns", "exec", f"h{host}"]


# --- the hop


def plug(host: str) -> None:
    """Makes a host, and the link from its eth0 to a port of the hop."""
    command("ip", "netns", "add", f"h{host}")
    command("ip", "link", "add", f"p{host}", "type", "veth", "peer", "name", "eth0", "netns",
            f"h{host}")  # fmt: skip
    # One packet on the wire has to be one record, so nothing is segmented or merged later.
    for place, device in (([], f"p{host}"), (inside(host), "eth0")):
        command(*place, "ethtool", "-K", device, "tso", "off", "gso", "off", "gro", "off", "tx",
                "off")  # fmt: skip


def build(routed: bool) -> None:
    """Makes the hosts and the hop, which is the namespace that this runs in."""
    Path("/run/netns").mkdir(exist_ok=True)
    command("mount", "-t", "tmpfs", "none", "/run/netns")
    if routed:
        for name in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
            Path("/proc/sys/net", name).write_text("1\n")
        # What the hop says of its groups is over before the queues fill: tc would count it.
        Path("/proc/sys/net/ipv6/conf/default/mldv2_unsolicited_report_interval").write_text("1\n")
    else:
        command("ip", "link", "add", "bridge0", "type", "bridge", "mcast_snooping", "0")
        Path("/proc/sys/net/ipv6/conf/bridge0/disable_ipv6").write_text("1\n")
        command("ip", "link", "set", "bridge0", "up")
    for host, number in HOSTS.items():
        port = f"p{host}"
        plug(host)
        # Neighbours are asked again after half a minute, which a busy machine can take.
        for place, device in (([], port), (inside(host), "eth0")):
            for family in ("ipv4", "ipv6"):
                key = f"net.{family}.neigh.{device}.base_reachable_time_ms"
                command(*place, "sysctl", "-qw", f"{key}=3600000")
        # Behind a bridge all hosts are of one network. IPv6 would flood its groups over it.
        bits = {v4(host): 24, v6(host): 64} if routed else {v4(host): 16}
        if not routed:
            command(*inside(host), "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
            Path(f"/proc/sys/net/ipv6/conf/{port}/disable_ipv6").write_text("1\n")
        for address, length in bits.items():
            command(*inside(host), "ip", "addr", "add", f"{address}/{length}", "dev", "eth0",
                    *(["nodad"] if ":" in address else []))  # fmt: skip
        command(*inside(host), "ip", "link", "set", "eth0", "up")
        if not routed:
            command("ip", "link", "set", port, "master", "bridge0", "up")
            continue
        command("ip", "link", "set", port, "up")
        command("ip", "addr", "add", f"10.7.{number}.1/24", "dev", port)
        command("ip", "addr", "add", f"fd00:7:{number}::1/64", "dev", port, "nodad")
        command(*inside(host), "ip", "route", "add", "default", "via", f"10.7.{number}.1")
        command(*inside(host), "ip", "route", "add", "default", "via", f"fd00:7:{number}::1")
    # What a neighbour asks would be dropped by a full queue, and captures of IP do not have it.
    ping(routed)


def ping(routed: bool) -> None:
    """Lets A and B send an echo request to R over each family, and wait for the reply."""
    for sender in "AB":
        for address in (v4("R"), v6("R"))[: 2 if routed else 1]:
            command(*inside(sender), "ping", "-n", "-c", "1", "-W", "5", address)


def shape(port: str, *qdisc: str) -> None:
    """Gives a port a queue."""
    command("tc", "qdisc", "add", "dev", port, *qdisc)


def shape_by_htb(port: str, rate: str) -> None:
    """Gives a port an HTB with a class for all, and another for what the hop itself sends."""
    shape(port, "root", "handle", "1:", "htb", "default", "10")
    for number, limit in (("10", "20"), ("20", "1000")):
        command("tc", "class", "add", "dev", port, "parent", "1:", "classid", f"1:{number}",
                "htb", "rate", rate)  # fmt: skip
        shape(port, "parent", f"1:{number}", "handle", f"{number}:", "pfifo", "limit", limit)


def drop_at_random() -> None:
    """Lets a firewall drop one in fifty of the TCP segments to R, and count it (nft(8), numgen)."""
    command("nft", "add table inet t; add chain inet t f { type filter hook forward priority 0; }; "
            "add rule inet t f oifname pR meta l4proto tcp numgen random mod 100 < 2 "
            "counter drop")  # fmt: skip


def translate() -> None:
    """Lets the router give what it sends to R an address of its own (nft(8), masquerade)."""
    command("nft", "add table ip t; "
            "add chain ip t p { type nat hook postrouting priority srcnat; }; "
            "add rule ip t p oifname pR masquerade")  # fmt: skip


def queue_drops(port: str) -> int:
    """What the queues of a port counted as dropped."""
    found = json.loads(command("tc", "-s", "-j", "qdisc", "show", "dev", port))
    return int(next((each["drops"] for each in found if each.get("root")), 0))


def firewall_drops() -> int:
    """What the firewall counted as dropped."""
    rules = json.loads(command("nft", "-j", "list", "ruleset"))["nftables"]
    return sum(
        part["counter"]["packets"]
        for each in rules
        for part in each.get("rule", {}).get("expr", [])
        if "counter" in part
    )


# --- captures


def tcpdump(folder: Path) -> list[list[str]]:
    """The command of docs/own-captures.md for each port."""
    return [
        ["tcpdump", "-i", f"p{host}", "-s", "96", "-B", "65536", "--time-stamp-precision=nano",
         "-w", str(folder / f"{host}.pcap"), "-Z", "root", *FILTER.split()]
        for host in HOSTS
    ]  # fmt: skip


@contextmanager
def captured(commands: list[list[str]]) -> Iterator[None]:
    """Captures meanwhile. Ends with SystemExit if a capture lacks packets."""
    running = []
    for words in commands:
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        running.append(process)
        while "listening on" not in process.stderr.readline():
            if process.poll() is not None:
                raise SystemExit(f"{' '.join(words)} ended with status {process.returncode}")
    yield
    # The kernel hands a block of packets to tcpdump when it is full, or after a second. tcpdump
    # drops a block that it has not got when it is told to end.
    time.sleep(1.5)
    for process in running:
        process.send_signal(signal.SIGINT)
    for words, process in zip(commands, running, strict=True):
        told = process.communicate(timeout=DEADLINE_S)[1]
        if "0 packets dropped by kernel" not in told:
            raise SystemExit(f"{' '.join(words)}: {told}")


# --- traffic


def receive() -> None:
    """A host's program: reads all that anyone sends, and closes when that ends."""

    def take(connection: socket.socket) -> None:
        while connection.recv(1 << 16):
            pass
        connection.close()

    listener = socket.create_server(
        ("::", PORT), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64
    )
    print("listening", flush=True)
    while True:
        threading.Thread(target=take, args=listener.accept()[:1], daemon=True).start()


def send(addresses: list[str], priority: int = 0) -> None:
    """A host's program: a TCP flow to each address for a while; ends when all has come there."""

    def give(address: str) -> None:
        kind = socket.AF_INET6 if ":" in address else socket.AF_INET
        connection = socket.socket(kind, socket.SOCK_STREAM)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)
        connection.settimeout(DEADLINE_S)
        connection.connect((address, PORT))
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            connection.sendall(b"d" * 16_384)
            if priority:
                # A session of a router has little to say.
                time.sleep(0.01)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)

    tasks = [threading.Thread(target=give, args=(address,)) for address in addresses]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()


def exchange(flows: dict[str, list[str]], own: list[str]) -> None:
    """Lets hosts send to these addresses, and the hop to those of `own`, until all has come."""
    me = [sys.executable, "-m", "tests.emulation.hops"]
    receivers = [
        subprocess.Popen([*inside(host), *me, "--receive"], stdout=subprocess.PIPE)
        for host in ("A", "R")
    ]
    for process in receivers:
        process.stdout.readline()
    senders = [
        subprocess.Popen([*inside(host), *me, "--send", *addresses])
        for host, addresses in flows.items()
    ]
    if own:
        senders.append(subprocess.Popen([*me, "--send", *own, "--priority", str(OWN_CLASS)]))
    for process in senders:
        if process.wait(timeout=DEADLINE_S):
            raise SystemExit(f"a sender ended with status {process.returncode}")
    for process in receivers:
        process.kill()
        process.wait()


# --- scenes


def _tbf(limit: str = "16384") -> None:
    for port, rate in (("pR", RATE), ("pA", BACK)):
        shape(port, "root", "tbf", "rate", rate, "burst", "2kb", "limit", limit)


def _translated() -> None:
    _tbf()
    translate()


def _htb() -> None:
    shape_by_htb("pR", RATE)
    shape_by_htb("pA", BACK)


def _policed() -> None:
    # So deep that the queue drops nothing.
    _tbf("4mb")
    drop_at_random()


SCENES: dict[str, tuple[bool, Callable[[], None]]] = {
    "router": (True, _tbf),
    "nat": (True, _translated),
    "own": (True, _htb),
    "bridge": (False, _htb),
    "random": (True, _policed),
}
"""Whether the hop routes, and what it does besides."""


def _scene(folder: Path, kind: str) -> None:
    """Makes a scene; runs inside namespaces of its own."""
    routed, prepare = SCENES[kind]
    build(routed)
    prepare()
    flows = {"A": [v4("R"), v4("R")], "B": [v4("R")] * 3}
    if kind != "nat":
        flows["R"] = [v4("A")]
    if routed:
        flows["A"].append(v6("R"))
    with captured(tcpdump(folder)):
        exchange(flows, [v4("R")] if kind == "own" else [])
        if kind == "random":
            # The very last segment may be dropped: only what leaves after it tells that it was.
            ping(routed)
    truth = {
        "queues": {host: queue_drops(f"p{host}") for host in HOSTS},
        "firewall": firewall_drops() if kind == "random" else 0,
    }
    (folder / "truth.json").write_text(json.dumps(truth) + "\n")


def make_scene(folder: Path, kind: str) -> dict[str, int]:
    """Makes a scene in namespaces of its own. Returns by port what was dropped on the way to it."""
    words = [*ISOLATED, sys.executable, "-m", "tests.emulation.hops", str(folder), kind]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False
    )
    assert not done.returncode, done.stderr
    truth = json.loads((folder / "truth.json").read_text())
    queues: dict[str, int] = truth["queues"]
    return {**queues, "R": queues["R"] + truth["firewall"]}


def main() -> None:
    """The command line; it also is the hosts' programs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("kind", choices=SCENES, nargs="?")
    parser.add_argument("--receive", action="store_true")
    parser.add_argument("--send", nargs="+")
    parser.add_argument("--priority", type=int, default=0)
    given = parser.parse_args()
    if given.receive:
        receive()
    elif given.send:
        send(given.send, given.priority)
    else:
        _scene(given.folder, given.kind)


if __name__ == "__main__":
    main()
