"""Breaks the rules of the join and of what judges one by one, and shows that a test notices each.

    python -m tests.golden.mutations [WORD]

Each mutation is made in a copy of the project. The tests of its rules run there and must fail.

Some rules keep the ledger from removing what is not ours. Without them a test could remove what
the machine needs. So the program wants root, and the tests run as a user who owns only the copy, in
process and mount namespaces of their own.

With WORD, only mutations whose name contains it are made.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.golden.judging import JUDGING
from tests.golden.mutation import Mutation

REPOSITORY = Path(__file__).resolve().parents[2]
OWNS_NOTHING = 61_234
"""The number of a user who owns no file and no process on any machine."""

MUTATIONS = [
    Mutation("identity: no sequence number", "decoder", "np.uint64(seq) << np.uint64(32)", "0"),
    Mutation("identity: no IP id", "decoder", "(np.uint64(ip_id) << np.uint64(40))", "0"),
    Mutation("identity: no flags", "decoder", "| (np.uint64(flags) << np.uint64(32))", "| 0"),
    Mutation("identity: no payload length", "decoder", "| np.uint64(payload),", "| 0,"),
    Mutation("identity: no addresses and ports", "decoder", "last_hash = h\n", "last_hash = 1\n"),
    Mutation("identity: no TTL", "join/packets", "np.uint64(columns.ttl[row])", "np.uint64(0)"),
    Mutation("identity: no checksum", "join/packets", "(columns.checksum[row])", "(0)"),
    Mutation("identity: no time stamp", "join/packets", "use[which]:", "use[which] and which < 2:"),
    Mutation("identity: parts always used", "join", "agreeing >= least", "True"),
    Mutation("routed hop not refused", "join", 'name == "ttl" and not options.routed', "False"),
    Mutation("causality", "matching", "in_stamp[arrived] <= now + tolerance",
             "in_stamp[arrived] >= 0"),
    Mutation("longest sojourn", "matching", "in_stamp[expired] < now - max_sojourn", "False"),
    Mutation("order within the flow", "matching",
             "(at > last_of_flow[flow] or flow_left_by[flow] != output) and (", "True and ("),
    Mutation("order within the port", "matching", "at > last_of_pair[in_port[at], output]", "True"),
    Mutation("order across ports", "matching", "and in_stamp[at] >= newest[output] - slack[output]",
             ""),
    Mutation("slack of the switch", "verdicts", "order.newest - order.slack", "order.newest"),
    Mutation("earliest first", "matching", "chosen = at\n                    break\n",
             "chosen = at\n"),
    Mutation("used once", "matching", "        _unlink(chosen, bucket,",
             "        _unlink(-2, bucket,"),
    Mutation("overtaken by the flow", "verdicts",
             "missing < order.last_of_flow[of_flow]", "missing < 0"),
    Mutation("overtaken in the port", "verdicts",
             "(order.inversions[port] == 0) & (missing < order.last_of_pair[port, to])",
             "missing < 0"),
    Mutation("order across classes", "matching", "apart\n                    or (",
             "False\n                    or (", tests=("classes",)),
    Mutation("overtaken across classes", "verdicts", "if not apart:", "if True:",
             tests=("classes",)),
    Mutation("classes: DSCP of IPv4", "decoder", "tos = data[at + 1]", "tos = data[at + 1] & 63",
             tests=("pcap_against_dpkt", "service_classes")),
    Mutation("classes: DSCP of IPv6", "decoder", "(load16(data, at) >> 4)", "load16(data, at)",
             tests=("pcap_against_dpkt",)),
    Mutation("classes: the one of all others", "port_summary", "points.index(None)", "1",
             tests=("service_classes",)),
    Mutation("classes: in the interval", "port_summary",
             "came & analysis.counts(port.reached_ns)", "came",
             tests=("service_classes",)),
    Mutation("overtaken across ports", "verdicts", "overtaken |= stamps < newest[to]", "pass"),
    Mutation("a port that reorders is a FIFO", "verdicts", "(order.inversions[port] == 0) & ", ""),
    Mutation("in flight at the end", "verdicts",
             "~before & (overtaken | (stamps + patience <= ends))", "~before"),
    Mutation("patience", "verdicts", "(stamps + patience <= ends)", "False"),
    Mutation("watched", "join", "max(last, last_ns)", "last"),
    Mutation("output late", "verdicts", "before = (stamps < begins)", "before = (stamps < 0)"),
    Mutation("first can be a drop", "verdicts", "first_ns - LATE_START_GAPS * gap", "first_ns"),
    Mutation("early departures", "verdicts", "stray[here[here < limit]] = Stray.EARLY", "pass"),
    Mutation("duplicates", "verdicts", "np.isin(matched.leaving[alone], gone)", "alone < 0"),
    Mutation("reordered noted", "matching", "reordered[chosen] = True",
             "reordered[chosen] = False"),
    Mutation("other destinations", "directions", "lambda flow: flow.dst in addresses",
             "lambda flow: True"),
    Mutation("output of a drop", "verdicts", "> 0, of_flow, egress)",
             "< 0, of_flow, 0 * egress - 1)"),
    Mutation("ties of the clock", "join/packets", "other_first and other[passed] == own[i]",
             "False"),
    Mutation("steps back", "clocks", "if 2 * int(np.ptp(behind)) >= by_ns:", "if False:"),
    Mutation("steps: bounds that contradict", "doubts", "clocks.contradiction is not None",
             "False"),
    Mutation("bounds of drops: IP ids", "drop_causes", "missing[f] += step - 1", "pass"),
    Mutation("bounds of drops: a late capture", "drop_causes",
             "missing[place] += int(back.max()) - np.unique(back).size", "pass"),
    Mutation("bounds of drops: in proportion", "drop_causes", "if lacks and counted:", "if False:"),
    Mutation("bounds of drops: sent again", "drop_causes", "if known_lacks or found_empty:\n",
             "if False:\n"),
    Mutation("repairs: never sent again", "segments", "if alone > max(MOST_SHARE * due, 1):",
             "if False:"),
    Mutation("repairs: new data alone shows", "segments", "is_forwarded & sent.is_new",
             "is_forwarded"),
    Mutation("repairs: a copy was forwarded", "segments", "is_due[copies] = False", "pass"),
    Mutation("repairs: one loss in a round trip", "segments",
             "latest_ns[flow] > since_ns + REPAIRED_WITHIN_NS", "True"),
    Mutation("doubts: recorded twice", "doubts", "if copies > max(MOST_SHARE * of_data.size, 1):",
             "if False:"),
    Mutation("offsets by causality", "offsets", "least = float(crossing.delay_ns.min())",
             "least = 1e18"),
    Mutation("clocks: the way back of given sides", "join",
             "between = pair_up(hop.sightings, captures, came_at, leaving_at)", "pass"),
    Mutation("drift", "offsets", "drift = 0.0 if bounds[0] <= 0 <= bounds[1] else",
             "drift = 0.0 *"),
    Mutation("clocks that fit are kept", "offsets", "if kept is not None:", "if False:"),
    Mutation("clocks that contradict", "offsets", "(np.diag(nearest) < 0).any()", "False"),
    Mutation("directions: both ways compared", "directions",
             "        if delays.size and other.size:", "        if False:"),
    Mutation("directions: what cooked captures say", "directions",
             "if not (marks[:1000] & (INBOUND | OUTBOUND)).any():", "if True:"),
    Mutation("directions: a host's own port", "join/places", "if len(whole) == 1:", "if False:"),
    Mutation("directions: elsewhere", "join/places",
             "self.places[address] = (ELSEWHERE,)", "pass"),
    Mutation("directions: the word", "join/places",
             "paths.settle(paths.by_the_word(ends, seen, said))", "pass"),
    Mutation("directions: stamps", "join/places",
             "paths.settle(_by_the_stamps(seen, delays, longest_ns, *ends))", "pass"),
    Mutation("directions: groups", "directions", "if is_group(flow.dst) or",
             "if False or"),
    Mutation("outputs of one-sided ports", "directions",
             "        _leave_out_one_sided(left_flows, captures, told)",
             "        pass"),
    Mutation("doubts: unexplained", "doubts", "if int(lost.sum()) > max(MOST_SHARE * total, 1):",
             "if False:"),
    Mutation("doubts: unexplained of a port", "doubts",
             "if int(from_there.sum()) > max(MOST_SHARE * all_of_it, 1):", "if False:"),
    Mutation("doubts: early", "doubts", "lost = lost | early", "pass"),
    Mutation("doubts: twice", "doubts", "elif int(twice.sum()) > max(MOST_SHARE * total, 1):",
             "elif False:"),
    Mutation("doubts: undecided", "doubts", "if count > max(FEW, MOST_SHARE * total):",
             "if False:"),
    Mutation("doubts: what left not captured", "doubts", "if towards.total() > judged:",
             "if False:"),
    Mutation("doubts: all dropped", "doubts",
             "if dropped > FEW and forwarded <= MOST_SHARE * dropped:", "if False:"),
    Mutation("doubts: untold", "doubts",
             "if directions.packets(index, UNTOLD) > max(MOST_SHARE * total, 1):",
             "if directions.packets(index, UNTOLD) > total:"),
    Mutation("identities: few packets", "same_flows", "or _has_same_end(flow, other))", "or True)"),
    Mutation("doubts: too long", "doubts", "if int(wrong.sum()) > MOST_SHARE * delay.size:",
             "if False:"),
    *(
        Mutation(f"limits of length: {name}", "drop_causes", text, replacement, tests=("join_hop",))
        for name, text, replacement in (
            ("few lost", "int(lost.sum()) < LEAST\n", "False\n"),
            ("one segment", "len(segments) < LEAST_DIFFERENT", "False"),
            ("down for a while", "int((np.diff(order) > 0).sum()) < LEAST_DIFFERENT", "False"),
            ("short ones too", "> MOST_SHORT * int((~is_long).sum())", "> rows.size"),
            ("one longer passed", "passed = int(length[went].max())", "passed = 700 + 66"),
            ("a full queue", "lost = is_long & room[rows]", "lost = is_long"),
            ("flows alike", "alike.append(one)", "alike[:] = rest[:1]"),
        )
    ),
    Mutation("changed: one bit", "matching", "(apart & (apart - 1) == 0)", "True",
             tests=("join_hop",)),
    Mutation("levels: what others passed", "estimates",
             "found.confidence < ALL and", "False and", tests=("join_hop",)),
    Mutation("levels: no limit then", "joins",
             " if output not in passed", "", room="api", tests=("join_hop",)),
    Mutation("levels: what nobody saw come in", "measure/queue_levels",
             "below=self.below + unseen)", "below=self.below)", tests=("join_service",)),
    Mutation("silence: what waits", "segments", "came_ns[before] if before >= 0 else left_ns[row]",
             "left_ns[row]", tests=("join_hop",)),
    Mutation("silence: what leaves later", "segments",
             "came_ns[after] if after > before else left_ns[row + 1]", "left_ns[row + 1]",
             tests=("join_hop",)),
    Mutation("a copy of an input", "estimates", "[came] == departures.stamp_ns[here]).all()",
             "[came] < 0).all()", tests=("join_hop",)),
    Mutation("explained drops: by length", "drop_causes", "explained[rows] = True", "pass",
             tests=("join_hop",)),
    Mutation("explained drops: in a pause", "drop_causes",
             "explained |= here & (since_ns >= 0) & (since_ns < pause.time_ns)", "pass",
             tests=("join_hop",)),
    Mutation("directions: no packet takes two paths", "join/places",
             "who = far, _pair(address, other)", "who = (_pair(address, other),)",
             tests=("join_queues",)),
    Mutation("rate: only while packets wait", "latency", "there_ns[1:] <= stamps[:-1]",
             "True"),
    Mutation("queue: departure first", "queue", "out_stamp[departure] <= in_stamp[arrival]",
             "out_stamp[departure] < in_stamp[arrival]"),
    Mutation("queue: own arrival first", "queue", "and came_as[departure] < arrival", ""),
    Mutation("queue: content at the start", "queue", "or initial[departure]", "or False"),
    Mutation("queue: length at the output", "queue",
             "out_frame[leaves] if leaves >= 0 else in_frame[arrival]", "in_frame[arrival]"),
    Mutation("chains end when one gets through", "blackout", "            current[g] = -1\n", ""),
    Mutation("chains: flows once", "blackout", "if seen[port[i], flow[i]] != chain:", "if True:"),
    Mutation("chains: others through", "blackout", "passed[out] - at_start[g]", "passed[out]"),
    Mutation("goodput: bytes once", "segments", "fresh[rows] = paint(", "paint("),
    Mutation("goodput: wrap", "segments", "step -= 0x100000000", "step -= 0"),
    Mutation("timeouts: probes", "tcp", "probe = high[i] == highest", "probe = False"),
    Mutation("timeouts: unheard", "tcp", " or unheard[i] < least_unheard", ""),
    Mutation("timeouts: silence", "tcp", "not again or silence < least_silence or", "not again or"),
    Mutation("spurious", "tcp", "and unseen[i] == 0", ""),
    Mutation("trust: counters", "trust", "if drops != counts.dropped:", "if False:"),
    Mutation("trust: kernel drops", "trust", "    if kernel_drops:\n", "    if False:\n"),
    Mutation("trust: unmatched", "trust", "    if strays:\n", "    if False:\n"),
    Mutation("trust: frames", "trust", "    if large.any():\n", "    if False:\n"),
    Mutation("trust: count of packets", "trust",
             "if capture.records != record.captured:", "if False:"),
    *JUDGING,
]  # fmt: skip


def survives(mutation: Mutation, folder: Path) -> bool:
    """Returns whether all tests pass with the mutation."""
    path = mutation.path(folder)
    original = path.read_text()
    path.write_text(original.replace(mutation.text, mutation.replacement))
    try:
        return passes(folder, mutation.tests)
    finally:
        path.write_text(original)


def passes(folder: Path, names: Iterable[str]) -> bool:
    """Returns whether all these tests pass in a copy of the project."""
    tests = [f"tests/unit/test_{name}.py" for name in names]
    user = [f"--reuid={OWNS_NOTHING}", f"--regid={OWNS_NOTHING}", "--clear-groups"]
    command = [
        *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("setpriv", *user, "--no-new-privs", "--bounding-set=-all"),
        *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests),
    ]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "TMPDIR": str(folder / "tmp"),
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, check=False, timeout=600
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def copied(folder: Path) -> None:
    """Copies the project into a folder, for the user who owns nothing else."""
    for part in ("outcast", "tests", "configs", "controllers", "topologies", "scripts"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / part, folder / part, ignore=ignore)
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    (folder / "tmp").mkdir()
    for path in (folder, *folder.rglob("*")):
        os.chown(path, OWNS_NOTHING, OWNS_NOTHING, follow_symlinks=False)


def main() -> None:
    """Prints each mutation's fate; exit status 1 if one survives."""
    if os.geteuid() != 0:
        raise SystemExit("root is needed, because the tests run as a user who owns nothing")
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [mutation for mutation in MUTATIONS if word in mutation.name]
    alive = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copied(folder)
        for names in dict.fromkeys(mutation.tests for mutation in chosen):
            if not passes(folder, names):
                raise SystemExit(f"tests fail without any mutation: {', '.join(names)}")
        for mutation in chosen:
            survived = survives(mutation, folder)
            print(f"{'SURVIVED' if survived else 'noticed':>8}  {mutation.name}", flush=True)
            if survived:
                alive.append(mutation)
    sys.exit(1 if alive else 0)


if __name__ == "__main__":
    main()
