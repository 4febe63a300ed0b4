"""Hostile inputs for the verbs: `python -m tests.golden.hostile [--inputs 300] [--seed 1]`.

Captures, run folders, submissions, sweeps and configurations are edited by chance, and each is
given to a verb. The verb must answer in one line and in time, without a traceback, without anything
for the terminal to act on, and must write nothing outside its place.

Verbs run within a process that is kept, because starting one takes longer than most inputs do. One
that hangs is ended, and another is started. An input is made again by its number and the seed.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import io
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import polars as pl
import yaml
import zstandard

from tests.golden import fuzz, model

HUNG_S = 30.0
"""Of wall time, because a machine can be busy with something else."""
SLOW_S = 10.0
"""Of the processor's time."""
MEMORY_BYTES = 24 << 30
"""Of address space, so memory that is asked for and never used counts."""
STATUSES = (0, 1, 2, 3, 4)

CONFIGS = Path(__file__).parents[2] / "configs"

_RAW = "RAW:"
"""A text that begins with this goes into JSON or YAML as it is, without quotes."""

VALUES: tuple[Any, ...] = (
    *(-1, 0, 1, 0.5, -0.5, 2**31, 2**62, 2**63 - 1, 2**63, -(2**63), 10**30, 1e300, -1e300),
    *(None, True, "", "x", "16KB", "-1ms", [], {}, [[]], [None], {"a": 1}, [1, 2, 3]),
    *("../../precious", "/etc/passwd", "a/../../b", "~", "*", "q[1]", "a\0b", "a\nb"),
    *(
        "\x1b[31mred\x1b[2J",
        "[red]x[/red]",
        "[/]",
        "\u202eevil",
        "\x9b1m",
        "ü" * 300,
        "x" * 100_000,
    ),
    *(f"{_RAW}{text}" for text in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" * 5000)),
    f"{_RAW}{'[' * 3000}{']' * 3000}",
    _RAW + '{"a":' * 900 + "1" + "}" * 900,
    f'{_RAW}"\\ud800"',
    f'{_RAW}"\\u001b[31m"',
)

NAMES = (
    *("q[1]", "a*b", "a?b", "ü b", "[red]x", "[bold]", "a\x1b[31mb", "a\nb", "~", "x" * 200),
    *("\u202eb", "a=b", "b\udcffc", "{a}", "%s", "$HOME", "a;b", "'", '"'),
)

TEXTS: tuple[bytes, ...] = (
    *(b"", b"\0", b"\xff\xfe", b"null", b"[]", b"{}", b"1", b'"x"', b"{", b"\xef\xbb\xbf{}"),
    *(b"[" * 1_000_000, b'{"a":' * 100_000, b"- " * 500_000, b"9" * 1_000_000, b"\x1b[31m"),
    b"a: &a [" + b"x," * 1000 + b"]\n" + b"b: [" + b"*a," * 100_000 + b"]\n",
)


WORDS = (
    *("!!bool x", "!!int ''", "!!timestamp x", "!!binary '#'", "2020-99-99", ".inf", "1.0e+999"),
    *("1" + ":59" * 100_000, "0x" + "f" * 100_000, "!!set {[a]: b}", "&a [*a]", '"\\e[2J"'),
    "!!python/object/apply:os.system [ls]",
)
"""Of YAML."""


@dataclass(frozen=True)
class Bases:
    """The originals that are edited; made once, whole and right."""

    run: Path
    submission: Path
    sweep: Path
    captures: tuple[bytes, ...]


@dataclass(frozen=True)
class Case:
    """One input.

    Attributes:
        arguments: of `outcast`.
        may_write: what it may write to, from the input's folder.
    """

    arguments: tuple[str, ...]
    may_write: tuple[str, ...] = ()


def make_bases(folder: Path) -> Bases:
    """Makes the originals."""
    from outcast import experiment
    from outcast.sweep import dataset, plan
    from outcast.sweep.store import SweepDirectory
    from outcast.view import figures, report
    from tests.golden import class_folder, fake_run
    from tests.golden.run_directory import analysed_run

    run = analysed_run(folder / "run", 20_000_000, 1, 300)
    figures.draw(run)
    report.write(run)
    run.seal()
    klass = class_folder.make_class(folder / "class", "ana")
    class_folder.submit(klass, "ana", folder / "submission")
    config = folder / "sweep.yaml"
    config.write_text(
        (CONFIGS / "linear-12.yaml").read_text() + "\nsweep: {queue.limit: [16KB, 64KB]}\n"
    )
    sweep = SweepDirectory(folder / "sweep")
    sweep.path.mkdir()
    shutil.copyfile(config, sweep.config)
    for each in plan.plan_sweep(experiment.read(config), lambda _: "virtual").runs:
        fake_run.execute(each.experiment, sweep.run(each.point.name).path)
    dataset.write(sweep)
    return Bases(run.path, folder / "submission", sweep.path, tuple(fuzz.seeds()))


def edited(tree: Any, draw: random.Random) -> Any:
    """The tree with up to three values replaced, removed or doubled."""
    tree = copy.deepcopy(tree)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        places = list(_places(tree))
        if not places:
            return copy.deepcopy(draw.choice(VALUES))
        holder, key = draw.choice(places)
        match draw.randrange(8):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.append(holder[key])
            case 1:
                holder[draw.choice([each for each in VALUES if isinstance(each, str)])] = 1
            case _:
                holder[key] = copy.deepcopy(draw.choice(VALUES))
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield tree, key
            yield from _places(value)
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield tree, index
            yield from _places(value)


def as_json(tree: Any) -> bytes:
    """Writes JSON, including values for which JSON has no word."""
    text = json.dumps(tree)
    return re.sub(rf'"{_RAW}((?:[^"\\]|\\.)*)"', _unquoted, text).encode()


def _unquoted(found: re.Match[str]) -> str:
    text: str = json.loads(f'"{found[1]}"')
    return text


def as_yaml(tree: Any) -> bytes:
    """Writes YAML, including values for which YAML has other words."""
    text = yaml.safe_dump(tree, allow_unicode=True)
    for raw, word in (("NaN", ".nan"), ("Infinity", ".inf"), ("-Infinity", "-.inf")):
        text = text.replace(f"{_RAW}{raw}", word)
    return re.sub(rf"(['\"]?){_RAW}([0-9e\[\]-]+)\1", r"\2", text).encode()


def special(path: Path, draw: random.Random) -> None:
    """Puts something that is no regular file in a file's place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    match draw.randrange(8):
        case 0 | 1:
            os.mkfifo(path)
        case 2:
            path.symlink_to("/dev/zero")
        case 3:
            path.symlink_to("/")
        case 4:
            path.symlink_to(Path("../" * 9) / "precious")
        case 5:
            path.mkdir()
        case 6:
            listening = socket.socket(socket.AF_UNIX)
            # The name of a socket must be short, so it is relative to the present folder.
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                listening.bind(f"/proc/self/fd/{descriptor}/{path.name}"[:107])
            except OSError:
                path.mkdir(exist_ok=True)
            finally:
                listening.close()
                os.close(descriptor)
        case 7:
            path.symlink_to(path.name)


def hurt_table(path: Path, draw: random.Random) -> None:
    """Changes columns, types or rows of a table."""
    frame = pl.read_parquet(path.read_bytes())
    column = draw.choice(frame.columns)
    match draw.randrange(8):
        case 0:
            frame = frame.drop(column)
        case 1:
            frame = frame.with_columns(pl.lit("\x1b[31mx").alias(column))
        case 2:
            frame = frame.with_columns(pl.lit(None).alias(column))
        case 3:
            frame = frame.with_columns(pl.lit([[1, 2]]).alias(column))
        case 4:
            frame = frame.clear()
        case 5:
            frame = pl.DataFrame({"x": [1]})
        case 6:
            # A few bytes that expand to gigabytes.
            frame = pl.select(pl.repeat(1, 300_000_000, dtype=pl.Int8).alias(column))
        case 7:
            path.write_bytes(fuzz.damage(path.read_bytes(), draw))
            return
    with path.open("wb") as stream:  # polars cannot write to a name that is not UTF-8.
        frame.write_parquet(stream)


def hurt_file(path: Path, draw: random.Random) -> None:
    """Edits a file according to its kind."""
    if not path.is_file() or draw.random() < 0.12:
        special(path, draw)
        return
    kind = path.suffix
    if kind == ".parquet" and draw.random() < 0.85:
        hurt_table(path, draw)
    elif kind == ".json" and draw.random() < 0.8:
        path.write_bytes(as_json(edited(json.loads(path.read_text()), draw)))
    elif kind == ".yaml" and draw.random() < 0.8:
        path.write_bytes(as_yaml(edited(yaml.safe_load(path.read_text()), draw)))
    elif kind == ".pcap" and draw.random() < 0.8:
        path.write_bytes(fuzz.damage(path.read_bytes(), draw))
    else:
        path.write_bytes(draw.choice(TEXTS))


def hurt_capture(path: Path, bases: Bases, draw: random.Random) -> None:
    """A damaged capture, or a file that expands to gigabytes."""
    header = model.PCAP_HEADER
    match draw.randrange(12):
        case 0:
            special(path, draw)
        case 1:
            compress = zstandard.ZstdCompressor().compressobj()
            with path.open("wb") as stream:
                stream.write(compress.compress(header))
                for _ in range(2000):
                    stream.write(compress.compress(bytes(1 << 20)))
                stream.write(compress.flush())
        case 2:
            part = gzip.compress(bytes(1 << 24))
            path.write_bytes(gzip.compress(header) + part * 40)
        case 3:
            path.write_bytes(header)
            os.truncate(path, 40 << 30)
        case 4:
            path.write_bytes(draw.choice(TEXTS))
        case _:
            path.write_bytes(fuzz.damage(draw.choice(bases.captures), draw))


def named(usual: str, draw: random.Random) -> str:
    """The usual name, or now and then one that is to harm."""
    return draw.choice(NAMES) if draw.random() < 0.3 else usual


def a_capture(folder: Path, bases: Bases, draw: random.Random) -> Case:
    """Inputs of `join`, and its table for `inspect`."""
    name = named("in.pcap", draw)
    if draw.random() < 0.2:
        table = folder / f"{name[:100]}.{draw.choice(('parquet', 'csv'))}"
        if table.suffix == ".csv":
            frame = pl.read_parquet(bases.run / "packets.parquet", glob=False)
            text = frame.head(20).write_csv().encode()
            table.write_bytes(fuzz.damage(text, draw))
        else:
            shutil.copyfile(bases.run / "packets.parquet", table)
            hurt_file(table, draw)
        options = draw.choice(((), ("--queue",), ("--format", "json"), ("--port", "s1-eth2")))
        return Case(("inspect", str(table), *options))
    hurt_capture(folder / name, bases, draw)
    (folder / "out.pcap").write_bytes(draw.choice(bases.captures))
    ports = [f"{draw.choice((*NAMES, 'a'))}={folder / name}", f"b={folder / 'out.pcap'}"]
    draw.shuffle(ports)
    return Case(
        ("join", "--in", ports[0], "--out", ports[1], "-o", str(folder / "t.parquet")),
        ("t.parquet",),
    )


def a_run(folder: Path, bases: Bases, draw: random.Random) -> Case:
    """Inputs of the verbs that read run folders."""
    name = named("run", draw)
    run = folder / name
    shutil.copytree(bases.run, run)
    files = ["manifest.json"] * 6 + ["counters.json"] * 3 + ["config.yaml"] * 2
    verb = draw.choice(("analyze", "analyze", "report", "inspect", "inspect", "export"))
    if verb != "analyze":
        files += ["summary.json"] * 4 + [f"{each}.parquet" for each in _TABLES] * 2
    if verb == "report":
        files += ["plan.json"] * 6
    files += [f"captures/{each.name}" for each in (run / "captures").iterdir()]
    files += ["captures", "samples", "flows/schedule.jsonl", "samples/sockets.zst", "blackout.json"]
    path = run / draw.choice(files)
    path.parent.mkdir(exist_ok=True)
    if path.name in ("schedule.jsonl", "sockets.zst") and draw.random() < 0.8:
        path.write_bytes(
            zstandard.compress(bytes(4) + draw.choice(TEXTS))
            if path.suffix == ".zst"
            else as_json(edited(_SCHEDULED, draw)) + b"\n"
        )
    else:
        hurt_file(path, draw)
    options: tuple[str, ...] = ()
    if verb == "inspect":
        options = draw.choice(((), ("--queue",), ("--packet", "3"), ("--links",), ("--flow", "1")))
    if verb == "export":
        form = draw.choice(("pcapng", "pcapng", "csv"))
        selected = draw.choice(((), ("--blackout", "0"), ("--flow", "1")))
        options = (f"--{form}", str(run / f"x.{form}"), *selected)
    return Case((verb, str(run), *options), (name,))


_TABLES = ("packets", "queue", "blackouts", "throughput", "flows", "bins", "fairness")
_SCHEDULED = {
    **{"flow": 0, "workload": 0, "kind": "poisson", "src": "h2", "dst": "h1", "sport": 40001},
    **{"size_bytes": 1000, "start_ns": 0, "round": None, "end_ns": None, "gap_ns": None},
    "datagram_bytes": None,
}


def a_submission(folder: Path, bases: Bases, draw: random.Random) -> Case:
    """Inputs of `assignment`."""
    name = named("ana", draw)
    given = folder / name
    shutil.copytree(bases.submission, given)
    files = ["answers.yaml"] * 8 + ["assignment.yaml"] * 3 + ["configs/unfair.yaml"] * 3
    files += ["runs/unfair", "runs", "configs", "runs/remedy/captures", "runs/unfair/x.fifo"]
    files += [f"runs/unfair/{each}" for each in ("manifest.json", "counters.json", "flows.parquet")]
    hurt_file(given / draw.choice(files), draw)
    return Case(("assignment", "check", str(given)))


def a_sweep(folder: Path, bases: Bases, draw: random.Random) -> Case:
    """Inputs of `results` and `report`."""
    name = named("sweep", draw)
    given = folder / name
    shutil.copytree(bases.sweep, given)
    if draw.random() < 0.7:
        (given / "runs.parquet").unlink()
    run = draw.choice(sorted((given / "runs").iterdir()))
    files = ["sweep.yaml", "runs.parquet", "run_flows.parquet", "failed", "runs"]
    files += [f"runs/{run.name}/{each}" for each in ("summary.json", "flows.parquet")] * 3
    files += [f"runs/{run.name}", f"runs/{run.name}/manifest.json"]
    hurt_file(given / draw.choice(files), draw)
    return Case((draw.choice(("results", "report")), str(given)), (name,))


def a_config(folder: Path, bases: Bases, draw: random.Random) -> Case:
    """Inputs of the verbs that read configurations."""
    name = named("config", draw)
    path = folder / f"{name}.yaml"
    base = yaml.safe_load(draw.choice(sorted(CONFIGS.rglob("*.yaml"))).read_text())
    match draw.randrange(12):
        case 0:
            special(path, draw)
        case 1:
            path.write_bytes(draw.choice(TEXTS))
        case 2:
            path.write_bytes(_alias_bomb(draw))
        case 3:
            word = draw.choice(WORDS)
            path.write_text(f"name: x\nduration: {word}\n")
        case 4:
            huge = [f"{key}{n}" for n in range(9) for key in ("links.rate", "queue.limit")]
            base["sweep"] = {key: [*range(200)] for key in huge}
            path.write_bytes(as_yaml(base))
        case 5:
            sizes = folder / "sizes.csv"
            sizes.write_text("1460,0.5\n2000,1\n")
            hurt_file(sizes, draw)
            background = {"kind": "background", "load": 0.1, "sizes": str(sizes)}
            path.write_bytes(as_yaml({**base, "workloads": [background]}))
        case _:
            path.write_bytes(as_yaml(edited(base, draw)))
    verb = draw.choice((("topo",), ("topo",), ("sweep", "--dry-run")))
    return Case((verb[0], str(path), *verb[1:]))


def _alias_bomb(draw: random.Random) -> bytes:
    merge = draw.random() < 0.3
    lines = ["a0: &a0 {k: 1}" if merge else "a0: &a0 [x, x, x]"]
    for level in range(1, 12):
        aliases = ", ".join([f"*a{level - 1}"] * 9)
        inner = f"{{<<: [{aliases}]}}" if merge else f"[{aliases}]"
        lines.append(f"a{level}: &a{level} {inner}")
    return "\n".join(lines).encode()


Maker = Callable[[Path, Bases, random.Random], Case]
KINDS: dict[str, tuple[Maker, int]] = {
    "captures": (a_capture, 70),
    "runs": (a_run, 90),
    "submissions": (a_submission, 30),
    "sweeps": (a_sweep, 25),
    "configs": (a_config, 75),
}
"""For each kind, the function that makes it, and how many of 300 inputs have it."""


def kind_of(number: int) -> str:
    """Yields the kinds in turn, each as often as KINDS says."""
    turns = [kind for kind, (_, share) in KINDS.items() for _ in range(share)]
    return turns[number * 7 % len(turns)]


def _snapshot(folder: Path, may_write: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    """Everything below a folder, except what may be written to."""
    kept = {}
    for path in [folder, *folder.rglob("*")]:
        name = str(path.relative_to(folder))
        if not any(name == each or name.startswith(f"{each}/") for each in may_write):
            state = path.lstat()
            # A folder's own time changes if something in it is written.
            when = 0 if path.is_dir() else state.st_mtime_ns
            kept[name] = (state.st_mode, 0 if path.is_dir() else state.st_size, when)
    return kept


def check(number: int, seed: int, bases: Bases, scratch: Path, server: Server) -> str:
    """Makes an input and gives it to its verb. Returns what is wrong with the answer, or ""."""
    maker, _ = KINDS[kind_of(number)]
    place = scratch / f"{number}"
    shutil.rmtree(place, ignore_errors=True)
    given = place / "given"
    for folder in (given, place / "precious", place / "beside", place / "here", place / "tmp"):
        folder.mkdir(parents=True)
    given.chmod(0o700)
    (place / "precious/file").write_text("precious")
    case = maker(given, bases, random.Random(f"{seed} {number}"))
    may_write = [f"given/{each}" for each in case.may_write]
    before = _snapshot(place, may_write)
    answer = server.ask(case.arguments, place)
    wrong = judge(case.arguments[0], answer)
    after = _snapshot(place, may_write)
    changed = sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )
    if changed:
        wrong.append(f"wrote to {changed[:3]}")
    if wrong:
        command = " ".join(ascii(each) for each in case.arguments)
        return f"input {number} of seed {seed}: outcast {command}: {'; '.join(wrong)}"
    shutil.rmtree(place)
    return ""


@dataclass(frozen=True)
class Answer:
    """What a verb did.

    Attributes:
        status: None if it was ended, or could not be ended.
        opened: files of the machine that it opened in Python: those in the folder `precious`.
    """

    status: int | None
    out: str
    err: str
    cpu_s: float
    opened: tuple[str, ...] = ()


_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_NO_ERROR = re.compile("grading |no report of ")


def judge(verb: str, answer: Answer) -> list[str]:
    """What is wrong with an answer."""
    wrong = []
    if answer.status not in STATUSES:
        wrong.append(f"status {answer.status}")
    if answer.cpu_s > SLOW_S:
        wrong.append(f"took {answer.cpu_s:.0f} s")
    if "Traceback" in answer.err or "panicked" in answer.err:
        wrong.append(f"traceback: {answer.err[-500:]!a}")
    errors = [line for line in answer.err.splitlines() if not _NO_ERROR.match(line)]
    # What `join` tells of captures' flaws and clocks is no error, nor that no packet fits; an error
    # comes last.
    if verb in ("join", "inspect"):
        errors = errors[-1:] if answer.status else []
    if len(errors) != (1 if answer.status else 0):
        wrong.append(f"{len(errors)} lines of error with status {answer.status}: {errors[-3:]}")
    if found := _CONTROL.search(answer.out + answer.err):
        at = found.start()
        wrong.append(f"for the terminal: {(answer.out + answer.err)[max(0, at - 40) : at + 20]!a}")
    return wrong


class Server:
    """A process that runs one verb after another."""

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Connection | None = None

    def ask(self, arguments: Sequence[str], place: Path) -> Answer:
        """Runs a verb in the folder `here` of `place`."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, other = context.Pipe()
            self._process = context.Process(target=_serve, args=(other,), daemon=True)
            self._process.start()
            other.close()
            self._pipe.poll(120)
            self._pipe.recv()
        self._pipe.send((list(arguments), str(place)))
        answered = self._pipe.poll(HUNG_S)
        try:
            status, cpu_s, opened = self._pipe.recv() if answered else (None, HUNG_S, ())
        except EOFError:
            status, cpu_s, opened = None, 0.0, ()
        if status is None:
            self.close()
        out, err = ((place / name).read_text(errors="surrogateescape") for name in ("out", "err"))
        for name in ("out", "err"):
            (place / name).unlink()
        return Answer(status, out, err, cpu_s, opened)

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = self._pipe = None


def _use_ledger(folder: Path) -> None:
    """Keeps verbs from the machine's own ledger, because `clean` would act on it."""
    from outcast.engines import ledger

    for name, value in (("default_folder", folder), ("all_folders", [folder])):
        if hasattr(ledger, name):
            setattr(ledger, name, lambda value=value: value)
    assert ledger.default_folder() == folder


def _run_nothing() -> None:
    """Keeps verbs from starting a run: no input may get so far that it needs one."""
    from outcast import workflow
    from outcast.api import guest
    from outcast.assignment import worker
    from outcast.errors import RunError
    from tests.golden import handed_class

    worker.GUEST = handed_class.RUNNER

    def refuse(*_: object, **__: object) -> None:
        raise RunError("nothing is run here")

    for module, name in (
        *((workflow, "execute"), (workflow, "execute_command"), (guest, "provide")),
    ):
        assert hasattr(module, name)
        setattr(module, name, refuse)


_opened: list[str] = []


def _note_opened(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if "/precious/" in path:
            _opened.append(path)


def _serve(pipe: Connection) -> None:
    from outcast import cli

    _run_nothing()
    sys.addaudithook(_note_opened)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for name in ("NO_COLOR", "COLUMNS"):
        os.environ[name] = "100"
    pipe.send("ready")
    while True:
        try:
            arguments, place = pipe.recv()
        except EOFError:
            return
        os.chdir(Path(place) / "here")
        _use_ledger(Path(place) / "given/outcast")
        os.environ["TMPDIR"] = tempfile.tempdir = f"{place}/tmp"
        for descriptor, name in ((1, "out"), (2, "err")):
            file = os.open(f"{place}/{name}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            os.dup2(file, descriptor)
            os.close(file)
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(io.FileIO(descriptor, "w", closefd=False), errors="surrogateescape")
            for descriptor in (1, 2)
        )
        _opened.clear()
        began = time.process_time()
        try:
            status = cli.invoke(arguments)
        except BaseException:
            status = 99
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        pipe.send((status, time.process_time() - began, tuple(_opened)))


def failures(numbers: Sequence[int], seed: int, folder: Path, jobs: int) -> list[str]:
    """Returns what is wrong with the answers to these inputs."""
    bases = make_bases(folder)
    mine = threading.local()
    servers: list[Server] = []

    def answer(number: int) -> str:
        if not hasattr(mine, "server"):
            mine.server = Server()
            servers.append(mine.server)
        return check(number, seed, bases, folder / "inputs", mine.server)

    try:
        with ThreadPoolExecutor(jobs) as pool:
            return [each for each in pool.map(answer, numbers) if each]
    finally:
        for server in servers:
            server.close()


def main() -> None:
    """Exits with status 1 if an answer is wrong, and keeps that input."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this input alone")
    parser.add_argument("--kind", choices=KINDS, help="inputs of this kind alone")
    given = parser.parse_args()
    numbers = range(given.inputs) if given.only is None else [given.only]
    chosen = [number for number in numbers if given.kind in (None, kind_of(number))]
    folder = Path(tempfile.mkdtemp(prefix="outcast-hostile-"))
    began = time.monotonic()
    wrong = failures(chosen, given.seed, folder, given.jobs)
    print("\n".join(wrong))
    print(f"{len(chosen)} inputs in {time.monotonic() - began:.0f} s, {len(wrong)} answered wrong")
    if wrong:
        print(f"kept in {folder}/inputs")
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
