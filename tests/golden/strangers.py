"""What a stranger hands over, each made to harm: archives, submissions, captures, tables, configs.

Each function makes one in a folder and returns its path. Beside it is `precious/file`, which
nothing may read or change. `tests/unit/project/test_strangers.py` gives each to every verb.
"""

import functools
import gzip
import io
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import yaml
import zstandard

from outcast import archive
from outcast.records.run_directory import RunDirectory
from tests.golden import model
from tests.golden.hostile import Bases

RED = "\x1b[31mred\x1b[2J\u202e[bold]"
Maker = Callable[[Path, Bases], Path]

BOMB_BYTES = 100 << 20

TOPOLOGY = """\
import pathlib
pathlib.Path({mark!r}).write_text("ran")
from mininet.topo import Topo
class Mine(Topo):
    def build(self):
        self.addLink(self.addHost("h1"), self.addSwitch("s1"))
        self.addLink(self.addHost("h2"), "s1")
topos = {{"mine": Mine}}
"""

GRAPH = """\
<?xml version="1.0"?>
<!DOCTYPE graphml [<!ENTITY secret SYSTEM "file://{secret}">{bomb}]>
<graphml><graph edgedefault="undirected"><node id="&secret;&b9;"/></graph></graphml>
"""


@functools.cache
def _bomb(kind: str) -> bytes:
    whole = model.PCAP_HEADER + bytes(BOMB_BYTES)
    return zstandard.compress(whole) if kind == "zstd" else gzip.compress(whole)


def _table(bases: Bases) -> bytes:
    return (bases.run / "packets.parquet").read_bytes()


@functools.cache
def _of_many_rows() -> bytes:
    """A table of a few bytes that stand for gigabytes."""
    stream = io.BytesIO()
    pl.select(flow=pl.repeat(1, 300_000_000, dtype=pl.Int8)).write_parquet(stream)
    return stream.getvalue()


def precious(folder: Path) -> Path:
    """The file that nothing may read."""
    return folder.parent / "precious/file"


def keys(folder: Path) -> dict[str, dict[str, Any]]:
    """Keys of a configuration that name a file outside, or that are to harm."""
    secret = str(precious(folder))
    override = {"between": ["s1", "s2"], "rate": {"trace": secret}}
    program = {"name": "evil", "host": "h1", "command": ["sh"], "files": [secret]}
    own = {"kind": "file", "path": str(folder / "net.py"), "topo": "mine"}
    return {
        "sizes": {"workloads": [{"kind": "background", "load": 0.1, "sizes": secret}]},
        "trace": {"links": {"rate": "1gbit", "overrides": [override]}},
        "files": {"programs": [program]},
        "program": {"programs": [{**program, "command": ["touch", f"{secret}.ran"], "files": []}]},
        "module": {"kernel": {"modules": [secret]}},
        "topology": {"topology": own},
        "graph": {"topology": {"kind": "graph", "path": str(folder / "net.graphml")}},
        "name": {"name": RED},
        "host": {"guest": {"root": "host"}},
        "engine": {"engine": "realtime"},
    }


def _with_keys(run: Path, changes: dict[str, Any]) -> None:
    """Changes a run's configuration and seals it again, as somebody who knows how would."""
    directory = RunDirectory(run)
    tree = yaml.safe_load(directory.config.read_text())
    directory.config.write_text(yaml.safe_dump({**tree, **changes}, allow_unicode=True))
    directory.seal()


def _beside(folder: Path) -> None:
    bomb = '<!ENTITY b0 "xxxxxxxxxx">' + "".join(
        f'<!ENTITY b{n} "{f"&b{n - 1};" * 10}">' for n in range(1, 10)
    )
    (folder / "net.py").write_text(TOPOLOGY.format(mark=f"{precious(folder)}.ran"))
    (folder / "net.graphml").write_text(GRAPH.format(secret=precious(folder), bomb=bomb))


def run_with(key: str) -> Maker:
    """A run directory whose configuration has such a key."""

    def change(run: Path, folder: Path) -> None:
        _beside(folder)
        _with_keys(run, keys(folder)[key])

    return changed("run", change)


def pack_with(key: str) -> Maker:
    """An archive of such a run."""

    def make(folder: Path, bases: Bases) -> Path:
        run = run_with(key)(folder, bases)
        archive.write(folder / "run.zip", RunDirectory(run), "keep")
        shutil.rmtree(run)
        return folder / "run.zip"

    return make


def config_with(key: str) -> Maker:
    """A configuration with such a key."""

    def make(folder: Path, bases: Bases) -> Path:
        _beside(folder)
        tree = {**yaml.safe_load((bases.run / "config.yaml").read_text()), **keys(folder)[key]}
        (folder / "config.yaml").write_text(yaml.safe_dump(tree, allow_unicode=True))
        return folder / "config.yaml"

    return make


def zip_of(name: str, kind: int = 0o100644, content: bytes = b"x", times: int = 1) -> Maker:
    """A zip file with one member of such a name and kind."""

    def make(folder: Path, bases: Bases) -> Path:
        member = zipfile.ZipInfo(name.format(precious=precious(folder)))
        member.external_attr = kind << 16
        member.compress_type = zipfile.ZIP_DEFLATED
        with zipfile.ZipFile(folder / "x.zip", "w") as file:
            for _ in range(times):
                file.writestr(member, content.replace(b"PRECIOUS", bytes(precious(folder))))
        return folder / "x.zip"

    return make


def tar_of_a_device(folder: Path, bases: Bases) -> Path:
    """A tar file with a device, a link and a name that leads elsewhere."""
    with tarfile.open(folder / "x.tar.gz", "w:gz") as file:
        for name, kind in (("run/null", tarfile.CHRTYPE), ("run/link", tarfile.SYMTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, str(precious(folder))
            file.addfile(member)
        file.addfile(tarfile.TarInfo("../precious/new"), io.BytesIO())
    return folder / "x.tar.gz"


def changed(of: str, change: Callable[[Path, Path], Any]) -> Maker:
    """A run or a submission to which something is done; `change` gets it and `folder`."""

    def make(folder: Path, bases: Bases) -> Path:
        shutil.copytree(getattr(bases, of), folder / of)
        change(folder / of, folder)
        return folder / of

    return make


def linked(name: str) -> Maker:
    """One in which a file is a link to a file of the machine."""

    def change(given: Path, folder: Path) -> None:
        (given / name).unlink(missing_ok=True)
        (given / name).symlink_to(precious(folder))

    return changed("submission", change)


def endless(name: str) -> Maker:
    """One in which a file is a FIFO that nobody writes to."""

    def change(given: Path, folder: Path) -> None:
        (given / name).unlink(missing_ok=True)
        os.mkfifo(given / name)

    return changed("submission", change)


def submission_with(key: str) -> Maker:
    """A submission whose configurations have such a key."""

    def change(given: Path, folder: Path) -> None:
        _beside(folder)
        for path in (given / "configs").iterdir():
            tree = {**yaml.safe_load(path.read_text()), **keys(folder)[key]}
            path.write_text(yaml.safe_dump(tree, allow_unicode=True))

    return changed("submission", change)


def answers_of(text: str) -> Maker:
    """A submission with such answers."""
    return changed("submission", lambda given, _: (given / "answers.yaml").write_text(text))


def content(name: str, data: Callable[[Bases], bytes]) -> Maker:
    """A file with such a content."""

    def make(folder: Path, bases: Bases) -> Path:
        (folder / name).write_bytes(data(bases))
        return folder / name

    return make


def special(what: Callable[[Path], Any]) -> Maker:
    """Something that is no regular file."""

    def make(folder: Path, bases: Bases) -> Path:
        what(folder / "x.pcap")
        return folder / "x.pcap"

    return make


def topology(name: str) -> Maker:
    """A file with a network, given as it is."""

    def make(folder: Path, bases: Bases) -> Path:
        _beside(folder)
        return folder / name

    return make


_LINK, _DEVICE = 0o120777, 0o020666
_BILLION = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(12)
)

PACKS: dict[str, Maker] = {
    "zip: elsewhere": zip_of("run/../../precious/new"),
    "zip: absolute": zip_of("{precious}.new"),
    "zip: link": zip_of("run/config.yaml", _LINK, b"PRECIOUS"),
    "zip: device": zip_of("run/config.yaml", _DEVICE),
    "zip: bomb": zip_of("run/config.yaml", content=bytes(BOMB_BYTES)),
    "zip: twice": zip_of("run/config.yaml", times=2),
    "zip: for the terminal": zip_of(f"run/{RED}"),
    "tar": tar_of_a_device,
    **{
        f"pack: {key}": pack_with(key)
        for key in ("sizes", "trace", "files", "program", "module", "topology", "graph", "host")
    },
}
RUNS: dict[str, Maker] = {
    **{f"run: {key}": run_with(key) for key in ("sizes", "topology", "graph", "name", "engine")},
}
SUBMISSIONS: dict[str, Maker] = {
    **{
        f"submission: {key}": submission_with(key)
        for key in ("sizes", "trace", "files", "program", "module", "topology", "name")
    },
    "submission: link": linked("answers.yaml"),
    "submission: picture": linked("sketch.png"),
    "submission: FIFO": endless("assignment.yaml"),
    "submission: aliases": answers_of(_BILLION),
    "submission: for the terminal": answers_of(f'ratio: "{RED.encode("unicode_escape").decode()}"'),
}
CAPTURES: dict[str, Maker] = {
    "capture: FIFO": special(os.mkfifo),
    "capture: endless": special(lambda path: path.symlink_to("/dev/zero")),
    "capture: folder": special(lambda path: path.mkdir()),
    "capture: cut": content("x.pcap", lambda bases: bases.captures[0][:1000]),
    "capture: zstd bomb": content("x.pcap.zst", lambda bases: _bomb("zstd")),
    "capture: gzip bomb": content("x.pcap.gz", lambda bases: _bomb("gzip")),
    "capture: no capture": content("x.pcapng", lambda bases: f"{RED}\n".encode() * 100),
    "table: cut": content("x.parquet", lambda bases: _table(bases)[:-40]),
    "table: bomb": content("x.parquet", lambda _: _of_many_rows()),
    "table: no packets": content("x.csv", lambda _: b"a,b\n1,\x1b[31m\n"),
    "capture: name": content("\x1b[31mred\u202e.pcap", lambda bases: bases.captures[0][:1000]),
}
TOPOLOGIES: dict[str, Maker] = {"topology": topology("net.py"), "graph": topology("net.graphml")}
CONFIGS: dict[str, Maker] = {
    "config: aliases": content("x.yaml", lambda bases: _BILLION.encode()),
    "config: object": content("x.yaml", lambda _: b"!!python/object/apply:os.system [ls]"),
    "config: deep": content("x.yaml", lambda _: b"[" * 100_000),
    **{f"config: {key}": config_with(key) for key in ("graph", "name", "module", "files")},
}
INPUTS = {**PACKS, **RUNS, **SUBMISSIONS, **CAPTURES, **TOPOLOGIES, **CONFIGS}
