"""The programs of an experiment: which command runs where, and to which hosts it talks."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controllers import routes
from controllers.graph import Graph
from controllers.hashing import TCP, FiveTuple
from outcast.errors import ConfigError, did_you_mean, some_of
from outcast.experiment import Experiment
from outcast.experiment.programs import USUAL_SPREAD_NS
from outcast.plan import addresses
from outcast.plan.topology import Ways, there_and_back

PROBE_PORT = 9
"""The ports of a program's probes, because its own are not known before it runs. It is the port of
discard (RFC 863)."""

LIBRARIES = "libraries"
"""The folder among a program's files that has shared libraries (engines/program_files.py)."""

LET_FAIL = "executions, which allow_failure lets pass"
"""How a warning names failures that the configuration requests."""

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of every program, for any user who starts the run."""

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"(?<![\w.-])[A-Za-z][\w-]*(?![\w.-])")
_ADDRESS = re.compile(
    r"(?<![0-9.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9.])|(?<![0-9a-f:])[0-9a-f:]+::[0-9a-f:]+"
)
_FORMS = ("ipv4", "ipv6", "url")


@dataclass(frozen=True, slots=True)
class Program:
    """A command that runs in a host.

    Attributes:
        argv: its command line, with addresses in place of the hosts' names.
        ready_port, ready_line: how a server shows that it is ready; both are None for a client.
        start_ns: a client's first start after the traffic's start, as drawn.
        every_ns: time between the starts of two executions; None if the next starts at once.
        peers: the hosts that it talks to by the configuration.
    """

    name: str
    host: str
    argv: tuple[str, ...]
    ready_port: int | None
    ready_line: str | None
    ready_within_ns: int
    start_ns: int
    repeat: int
    every_ns: int | None
    allow_failure: bool
    files: tuple[str, ...]
    peers: tuple[str, ...]

    @property
    def is_server(self) -> bool:
        """Whether it runs from before the traffic until after it."""
        return self.ready_port is not None or self.ready_line is not None


@dataclass(frozen=True, slots=True)
class Command:
    """One command that runs in a host of the network, instead of flows and clients.

    Attributes:
        argv: its command line, with addresses in place of the hosts' names.
        within_ns: how long it may take, on the run's clock.
    """

    host: str
    argv: tuple[str, ...]
    folder: str
    within_ns: int


def resolve_programs(
    experiment: Experiment, graph: Graph, table: routes.Routes
) -> tuple[Program, ...]:
    """Every program, in the order of the configuration.

    Raises ConfigError: a program does not fit the topology, or two have one name.
    """
    if experiment.programs and table.choices:
        raise ConfigError(
            f"programs: {experiment.routing.kind} routing chooses paths by ports, which programs "
            "choose themselves; allowed is another routing"
        )
    families = addresses.families(experiment)
    hosts = {
        name: tuple(addresses.address_of(graph, name, family) for family in families)
        for name, data in graph.nodes(data=True)
        if "ip" in data
    }
    starts_ns = _starts(experiment)
    programs: list[Program] = []
    for index, keys in enumerate(experiment.programs):
        where = f"programs.{index}"
        if any(program.name == keys.name for program in programs):
            raise ConfigError(
                f"{where}.name: {keys.name} is another program's name; allowed is a new one"
            )
        require_host(hosts, keys.host, f"{where}.host")
        for name in keys.to:
            require_host(hosts, name, f"{where}.to")
        named: list[str] = [*keys.to]
        argv = []
        for place, word in enumerate(keys.command):
            filled, mentioned = fill(word, hosts, f"{where}.command.{place}")
            argv.append(filled)
            named += mentioned
        ready = keys.ready
        programs.append(
            Program(
                name=keys.name,
                host=keys.host,
                argv=tuple(argv),
                ready_port=None if ready is None else ready.port,
                ready_line=None if ready is None else ready.line,
                ready_within_ns=0 if ready is None else ready.within_ns,
                start_ns=starts_ns[index],
                repeat=keys.repeat,
                every_ns=keys.every_ns,
                allow_failure=keys.allow_failure,
                files=tuple(path.name for path in keys.files),
                peers=tuple(name for name in dict.fromkeys(named) if name != keys.host),
            )
        )
    return tuple(programs)


def _starts(experiment: Experiment) -> list[int]:
    """When each program begins, in ns after the traffic's start.

    Programs of different hosts that begin at one instant would stay in step, because their clocks
    agree to the nanosecond. So what is to begin at one time is spread, by draws from the seed.
    """
    clients = Counter(each.start.at_ns for each in experiment.programs if each.ready is None)
    starts_ns = []
    for keys in experiment.programs:
        at_ns, spread_ns = keys.start.at_ns, keys.start.spread_ns
        if spread_ns is None:
            others = clients[at_ns] > 1 and keys.ready is None
            spread_ns = min(USUAL_SPREAD_NS, experiment.duration_ns - at_ns) if others else 0
        draw = random.Random(f"{experiment.seed} start {keys.name}")
        starts_ns.append(at_ns + (draw.randrange(spread_ns) if spread_ns else 0))
    return starts_ns


def with_files(planned: Sequence[Program], experiment: Experiment) -> tuple[Program, ...]:
    """The programs of a plan, with the files that they have in this experiment."""
    return tuple(
        replace(program, files=tuple(path.name for path in keys.files))
        for program, keys in zip(planned, experiment.programs, strict=True)
    )


def fill(word: str, hosts: Mapping[str, Sequence[str]], where: str) -> tuple[str, list[str]]:
    """A word of a command with addresses in place of `{host}`, and the hosts that it names.

    `{host.ipv4}` and `{host.ipv6}` say which address; `{host.url}` is the first one as a URL has
    it, IPv6 in brackets (RFC 3986, section 3.2.2). `{{` and `}}` stand for braces. An address or a
    name that is written out names its host too.

    Args:
        word: as the configuration has it.
        hosts: every host's addresses; the first one is meant where nothing says which.
        where: the key that an error begins with.

    Raises ConfigError: a brace stands alone, or there is no such host.
    """
    named: list[str] = []

    def address(match: re.Match[str]) -> str:
        text = match[0]
        if text in ("{{", "}}"):
            return text[0]
        if match[1] is None:
            raise ConfigError(
                f"{where}: {word!r} has a brace alone; allowed is a host as {{{next(iter(hosts))}}}"
                ", or {{ and }} for braces"
            )
        name, form = match[1], ""
        if name not in hosts and name.rpartition(".")[2] in _FORMS:
            name, _, form = name.rpartition(".")
        try:
            require_host(hosts, name, where)
        except ConfigError as error:
            raise ConfigError(f"{error}; for braces write {{{text}}}") from None
        named.append(name)
        return _in_form(hosts[name], form, f"{where}: {text}")

    filled = _BRACES.sub(address, word)
    of_address = {ip: name for name, ips in hosts.items() for ip in ips}
    named += [of_address[ip] for ip in _ADDRESS.findall(filled) if ip in of_address]
    named += [name for name in _NAME.findall(filled) if name in hosts]
    return filled, named


def _in_form(own: Sequence[str], form: str, where: str) -> str:
    """One of a host's addresses: the first one, or that of a family, or as a URL has it."""
    if form in ("", "url"):
        return f"[{own[0]}]" if form and ":" in own[0] else own[0]
    for address in own:
        if (":" in address) == (form == "ipv6"):
            return address
    raise ConfigError(f"{where}: hosts have no such address; allowed is addressing: both")


def require_host(hosts: Mapping[str, object], name: str, where: str) -> None:
    """Raises ConfigError, which begins with `where`, unless there is a host of this name."""
    if name not in hosts:
        raise ConfigError(
            f"{where}: no host {name!r}; allowed are {some_of(hosts)}{did_you_mean(name, hosts)}"
        )


def pairs(programs: Sequence[Program]) -> list[tuple[str, str]]:
    """Each program's host with each host that it talks to, once."""
    named = ((program.host, peer) for program in programs for peer in program.peers)
    return list(dict.fromkeys(named))


def probe(src: str, dst: str) -> FiveTuple:
    """The headers of a packet that tries the path between two addresses of programs' hosts."""
    return FiveTuple(src, PROBE_PORT, dst, PROBE_PORT, TCP)


def program_ways(graph: Graph, table: routes.Routes, programs: Sequence[Program]) -> Ways:
    """The paths between the hosts of programs, each with the path back, in both orders.

    The path to the program's own host comes first, because a client mostly receives.
    """
    there = [there_and_back(graph, table, src, dst) for src, dst in pairs(programs)]
    return [way for out, back in there for way in ((back, out), (out, back))]
