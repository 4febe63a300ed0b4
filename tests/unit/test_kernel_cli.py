import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from outcast import cli
from outcast.api import building
from outcast.engines.kernel import build, cache
from outcast.engines.kernel.cache import Kernel
from outcast.engines.kernel.recipe import OURS
from outcast.engines.root import lock
from outcast.errors import CommandError, KernelError


@pytest.fixture
def kernel(tmp_path, monkeypatch) -> Kernel:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = tmp_path / "linux"
    program.write_text("elf")
    source = lock.ours().kernel_source
    return Kernel(source.name, source.version, OURS.digest, "7.3.4", 200.0, "ab" * 32, program)


def test_info_without_a_kernel_names_the_remedy(kernel, capsys):
    assert cli.invoke(["kernel", "info"]) == 3
    assert capsys.readouterr().err.strip().endswith("run outcast kernel build")


def test_info_shows_the_kernel_and_its_origin(kernel, capsys):
    folder = cache.default_folder()
    folder.mkdir(parents=True)
    why = "built by this machine's compiler, because of a reason"
    kept = cache.keep(replace(kernel, compiler="gcc 14", compiler_note=why), folder)
    assert cli.invoke(["kernel", "info"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == str(kept.program)
    assert told[1] == f"Linux 7.3.4 from linux-source-7.3 {kernel.version}, of the lock"
    assert "abababababab" in told[2]
    assert told[3] == "compiler: gcc 14, built by this machine's compiler, because of a reason"


def test_build_shows_its_stages_and_the_result(kernel, monkeypatch, capsys):
    asked: dict[str, object] = {}

    def fake(**options: object) -> Kernel:
        asked.update(options)
        tell = options["on_progress"]
        assert callable(tell)
        tell(build.Progress("fetch", detail="some-source"))
        for step in (1, 2, 400, 800):
            tell(build.Progress("compile", step, 800, "CC x.o"))
        return kernel

    monkeypatch.setattr(build, "build", fake)
    assert cli.invoke(["kernel", "build", "--jobs", "3", "--again"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "fetching the compiler and some-source",
        "compiling",
        "compiling, 1 min left",
    ]
    assert "Linux 7.3.4" in captured.out
    assert (asked["jobs"], asked["again"], asked["tarball"]) == (3, True, None)


def test_build_takes_what_the_lock_pins_from_where_the_user_says(kernel, tmp_path, monkeypatch):
    asked: dict[str, object] = {}
    monkeypatch.setattr(build, "build", lambda **options: asked.update(options) or kernel)
    words = ["kernel", "build", "--mirror", "http://m.example", "--packages", str(tmp_path)]
    assert cli.invoke([*words, "--snapshot", "http://s.example"]) == 0
    assert (asked["named"].mirror, asked["named"].snapshot) == (
        "http://m.example",
        "http://s.example",
    )
    assert asked["named"].packages == tmp_path


@pytest.mark.parametrize(
    "error", [KernelError("no source"), CommandError(["make", "linux"], 2, "no\nspace left")]
)
def test_a_failure_is_one_line(kernel, monkeypatch, capsys, error):
    def fail(**options: object) -> Kernel:
        raise error

    monkeypatch.setattr(build, "build", fail)
    assert cli.invoke(["kernel", "build"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_info_lists_all_kernels_the_default_first(kernel, tmp_path, capsys):
    folder = cache.default_folder()
    folder.mkdir(parents=True)
    default = cache.keep(kernel, folder)
    given = replace(kernel, recipe="cd" * 32, own=("nv.config",), built_s=0.0)
    own = cache.keep(given, folder)
    assert cli.invoke(["kernel", "info"]) == 0
    told = capsys.readouterr().out
    assert told.index(f"kernel.build={default.key}") < told.index(f"kernel.build={own.key}")
    assert "with nv.config" in told
    assert told.count("built in ") == 1
    shutil.rmtree(default.program.parent)
    assert cli.invoke(["kernel", "info"]) == 3
    assert f"(there are others: {own.key})" in capsys.readouterr().err


def test_guest_makes_and_shows_root_and_kernel_together(kernel, tmp_path, monkeypatch, capsys):
    made: list[tuple[object, dict[str, object]]] = []
    monkeypatch.setattr(
        building, "build_kernel", lambda **given: made.append(("", given)) or kernel
    )
    root = SimpleNamespace(key="abc", folder=tmp_path)
    monkeypatch.setattr(
        building, "build_root", lambda kind, **given: made.append((kind, given)) or root
    )
    words = ["guest", "build", "--jobs", "3", "--packages", str(tmp_path)]
    assert cli.invoke(words) == 0
    assert [kind for kind, _ in made] == ["runtime", "build", ""]
    assert {given["named"].packages for _, given in made} == {tmp_path}
    assert made[2][1]["jobs"] == 3
    assert "Linux 7.3.4" in capsys.readouterr().out
    for verb in ("info", "check"):
        assert cli.invoke(["guest", verb]) == 3
        assert "the guest's root is missing" in capsys.readouterr().err
    assert cli.invoke(["--help"]) == 0
    listed = capsys.readouterr().out
    assert re.search(r"^  guest ", listed, re.MULTILINE)
    assert not re.search(r"^  (kernel|root) ", listed, re.MULTILINE)
