"""Modules of the user's: compiled once, named in errors by the user's file, read back."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import configs
from outcast import experiment
from outcast.emulation import manifest
from outcast.engines import own_modules
from outcast.engines.guest import parts, roots
from outcast.engines.own_modules import Headers
from outcast.errors import CommandError, ConfigError, FeatureMissingError, ReadBackError
from outcast.experiment import Experiment, Kernel, Module

FIG3C = configs.find("fig3c")
HEADERS = Headers("guest abc", ("-C", "/headers/source"))


class FakeMake:
    """A compiler: it gives a module for each C file, or says what was wrong with it."""

    def __init__(self, said: Sequence[str] = (), version: str = "gcc 12.2.0") -> None:
        self.said = said
        self.version = version
        self.compiled: list[str] = []

    def run(
        self, argv: Sequence[str], *, on_line: Callable[[str], None] | None = None, **_: Any
    ) -> str:
        if argv[0] == "gcc":
            return f"{self.version}\nCopyright\n"
        assert list(argv[:3]) == ["make", *HEADERS.make]
        place = Path(next(word[2:] for word in argv if word.startswith("M=")))
        assert on_line is not None
        for line in self.said:
            on_line(line.replace("PLACE", str(place)))
        if self.said:
            raise CommandError(argv, 2, "make failed")
        stem = (place / "Makefile").read_text().split()[-1].removesuffix(".o")
        (place / f"{stem}.ko").write_bytes((place / f"{stem}.c").read_bytes())
        self.compiled.append(stem)
        return ""


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "mine" / "tcp_mine.c"
    path.parent.mkdir()
    path.write_text('#include <linux/module.h>\n#include "mine.h"\n#include "none.h"\n')
    (path.parent / "mine.h").write_text("int x;\n")
    return path


def compile_one(path: Path, run: FakeMake, **keys: object) -> own_modules.Compiled:
    module = Module.model_validate({"path": str(path), **keys})
    (compiled,) = own_modules.compile_all([module], HEADERS, run, path.parents[1] / "cache")
    return compiled


def test_a_module_is_compiled_once(source):
    run = FakeMake()
    first = compile_one(source, run, parameters={"beta": 717, "fast": True})
    assert first.name == "tcp_mine"
    assert first.arguments == "beta=717 fast=1"
    assert set(first.sha256) == {"tcp_mine.c", "mine.h"}
    assert first.program.name == "tcp_mine.ko"
    again = compile_one(source, run)
    assert again.program == first.program
    assert run.compiled == ["tcp_mine"]
    assert [path.name for path in first.program.parents[1].iterdir()] == [first.program.parent.name]


def test_what_decides_the_module_decides_its_place(source):
    places = {compile_one(source, FakeMake()).program}
    places.add(compile_one(source, FakeMake(version="gcc 13")).program)
    (source.parent / "mine.h").write_text("long x;\n")
    places.add(compile_one(source, FakeMake()).program)
    source.write_text("int y;\n")
    places.add(compile_one(source, FakeMake()).program)
    module = Module.model_validate({"path": str(source)})
    other = Headers("guest def", HEADERS.make)
    (compiled,) = own_modules.compile_all([module], other, FakeMake(), source.parents[1] / "cache")
    assert len(places | {compiled.program}) == 5


@pytest.fixture
def locked(tmp_path, monkeypatch) -> Headers:
    """Headers of the guest's kernel, and the root with the lock's compiler."""
    kept = tmp_path / "kept"
    (kept / "source").mkdir(parents=True)
    (kept / "source/Makefile").touch()
    (tmp_path / "root").mkdir()
    root = roots.Root(tmp_path / "root", "abc", "def", {})
    monkeypatch.setattr(own_modules.roots, "find", lambda kind: root)
    return Headers("guest abc", HEADERS.make, kept)


class FakeEnclosed(FakeMake):
    """The lock's compiler: it sees the headers beside the module."""

    def run(self, argv: Sequence[str], *, cwd: Path, **options: object) -> str:
        root = cwd.parent
        assert list(argv[:3]) == ["make", "-C", str(root / "headers/source")]
        assert (root / "headers/source/Makefile").exists()
        (cwd / "tcp_mine.ko").write_bytes(b"locked")
        return ""


def test_the_guests_modules_are_compiled_by_the_locks_compiler(source, locked, monkeypatch):
    def enclose(packages: Path, root: Path, run: object) -> FakeEnclosed:
        root.mkdir()
        return FakeEnclosed()

    monkeypatch.setattr(own_modules, "enclose", enclose)
    module = Module.model_validate({"path": str(source)})
    cache = source.parents[1] / "cache"
    (first,) = own_modules.compile_all([module], locked, FakeMake(), cache)
    assert first.program.read_bytes() == b"locked"
    recorded = own_modules.records([first])["tcp_mine"]["compiler"]
    assert recorded == f"pinned: {parts.PINNED.compiler}"
    monkeypatch.setenv("PATH", "/nonexistent")
    (again,) = own_modules.compile_all([module], locked, FakeMake(), cache)
    assert again == first


def test_where_its_root_cannot_be_entered_the_machines_compiler_serves(source, locked, monkeypatch):
    def refuse(packages: Path, root: Path, run: object) -> FakeEnclosed:
        raise FeatureMissingError("no user namespaces")

    monkeypatch.setattr(own_modules, "enclose", refuse)
    module = Module.model_validate({"path": str(source)})
    run = FakeMake()
    compiled = own_modules.compile_all([module], locked, run, source.parents[1] / "cache")
    assert run.compiled == ["tcp_mine"]
    assert own_modules.records(compiled)["tcp_mine"]["compiler"] == "this machine's: gcc 12.2.0"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.unlink(), "there is no such file"),
        (lambda path: (path.unlink(), path.mkdir()), "a folder; allowed is a regular file"),
        (lambda path: path.write_bytes(b" " * (5 << 20)), "larger than 4 MiB"),
        (lambda path: path.write_text('#include "../above.h"\n'), "files in its own folder"),
        (lambda path: path.write_text(f'#include "{path.parents[1]}/above.h"\n'), "its own folder"),
    ],
)
def test_a_file_that_cannot_be_compiled(source, make, why):
    (source.parents[1] / "above.h").touch()
    make(source)
    with pytest.raises(ConfigError, match=why):
        compile_one(source, FakeMake())


def of(*modules: object) -> Experiment:
    return experiment.load(FIG3C, {"kernel.modules": list(modules)})


def test_a_run_directory_has_the_sources(source, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    copied = own_modules.copy_sources(of(str(source)), run)
    assert str(copied.kernel.modules[0].path) == "modules/tcp_mine/tcp_mine.c"
    assert (run / "modules/tcp_mine/mine.h").read_text() == "int x;\n"
    # The folder stands alone: the configuration in it names the copies.
    config = run / "config.yaml"
    config.write_text(experiment.dump(copied))
    kernel = experiment.load(config).kernel
    assert kernel.modules[0].path == run / "modules/tcp_mine/tcp_mine.c"
    assert own_modules.copy_sources(experiment.load(FIG3C), run) == experiment.load(FIG3C)


@pytest.fixture
def shown(tmp_path) -> Path:
    folder = tmp_path / "module"
    parameters = folder / "tcp_mine" / "parameters"
    parameters.mkdir(parents=True)
    (folder / "tcp_mine" / "initstate").write_text("live\n")
    for name, value in {"beta": "717", "fast": "Y", "mask": "16", "kind": "new"}.items():
        (parameters / name).write_text(f"{value}\n")
    return folder


def kernel_with(parameters: Mapping[str, object], name: str = "tcp_mine.c") -> Kernel:
    return Kernel.model_validate({"modules": [{"path": name, "parameters": parameters}]})


def test_parameters_are_read_back(shown):
    requested = {"beta": 717, "fast": True, "mask": "0x10", "kind": "new"}
    assert manifest.read_modules(kernel_with(requested), shown) == {
        "tcp_mine": {"beta": "717", "fast": "Y", "mask": "16", "kind": "new"}
    }


@pytest.mark.parametrize(
    ("parameters", "name", "why"),
    [
        ({"beta": 716}, "tcp_mine.c", "parameter beta: requested 716, the kernel shows 717"),
        ({"fast": False}, "tcp_mine.c", "parameter fast: requested 0, the kernel shows Y"),
        ({"kind": "old"}, "tcp_mine.c", "requested old, the kernel shows new"),
        ({"gamma": 1}, "tcp_mine.c", r"shows none; tcp_mine\.c needs module_param\(gamma"),
        ({}, "tcp_other.c", "requested loaded, the kernel shows no such module"),
    ],
)
def test_a_module_that_is_not_as_requested(shown, parameters, name, why):
    with pytest.raises(ReadBackError, match=why):
        manifest.read_modules(kernel_with(parameters, name), shown)
