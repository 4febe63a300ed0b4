import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

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


@pytest.fixture
def folder(kernel) -> Path:
    made = cache.default_folder()
    made.mkdir(parents=True)
    return made


def test_info_without_a_kernel_names_the_remedy(kernel, verb):
    assert verb("kernel", "info", status=3).err.strip().endswith("run outcast kernel build")


def test_info_shows_the_kernel_and_its_origin(kernel, folder, verb):
    why = "built by this machine's compiler, because of a reason"
    kept = cache.keep(replace(kernel, compiler="gcc 14", compiler_note=why), folder)
    told = verb("kernel", "info").out.splitlines()
    assert told[0] == str(kept.program)
    assert told[1] == f"Linux 7.3.4 from linux-source-7.3 {kernel.version}, of the lock"
    assert "abababababab" in told[2]
    assert told[3] == f"compiler: gcc 14, {why}"


def test_build_shows_its_stages_and_the_result(kernel, monkeypatch, verb):
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
    captured = verb("kernel", "build", "--jobs", 3, "--again")
    stages = ["fetching the compiler and some-source", "compiling", "compiling, 1 min left"]
    assert captured.err.splitlines() == stages
    assert "Linux 7.3.4" in captured.out
    assert (asked["jobs"], asked["again"], asked["tarball"]) == (3, True, None)


def test_build_takes_what_the_lock_pins_from_where_the_user_says(
    kernel, tmp_path, monkeypatch, verb
):
    asked: dict[str, object] = {}
    monkeypatch.setattr(build, "build", lambda **options: asked.update(options) or kernel)
    places = ["--mirror", "http://m.example", "--snapshot", "http://s.example"]
    verb("kernel", "build", *places, "--packages", tmp_path)
    named = asked["named"]
    assert (named.mirror, named.snapshot) == ("http://m.example", "http://s.example")
    assert named.packages == tmp_path


@pytest.mark.parametrize(
    "error", [KernelError("no source"), CommandError(["make", "linux"], 2, "no\nspace left")]
)
def test_a_failure_is_one_line(kernel, monkeypatch, verb, error):
    def fail(**options: object) -> Kernel:
        raise error

    monkeypatch.setattr(build, "build", fail)
    assert len(verb("kernel", "build", status=1).err.splitlines()) == 1


def test_info_lists_all_kernels_the_default_first(kernel, folder, verb):
    default = cache.keep(kernel, folder)
    given = replace(kernel, recipe="cd" * 32, own=("nv.config",), built_s=0.0)
    own = cache.keep(given, folder)
    told = verb("kernel", "info").out
    assert told.index(f"kernel.build={default.key}") < told.index(f"kernel.build={own.key}")
    assert "with nv.config" in told
    assert told.count("built in ") == 1
    shutil.rmtree(default.program.parent)
    assert f"(there are others: {own.key})" in verb("kernel", "info", status=3).err


def test_guest_makes_and_shows_root_and_kernel_together(kernel, tmp_path, monkeypatch, verb):
    made: list[tuple[object, dict[str, object]]] = []
    monkeypatch.setattr(
        building, "build_kernel", lambda **given: made.append(("", given)) or kernel
    )
    root = SimpleNamespace(key="abc", folder=tmp_path)
    monkeypatch.setattr(
        building, "build_root", lambda kind, **given: made.append((kind, given)) or root
    )
    told = verb("guest", "build", "--jobs", 3, "--packages", tmp_path).out
    assert [kind for kind, _ in made] == ["runtime", "build", ""]
    assert {given["named"].packages for _, given in made} == {tmp_path}
    assert made[2][1]["jobs"] == 3
    assert "Linux 7.3.4" in told
    for word in ("info", "check"):
        assert "the guest's root is missing" in verb("guest", word, status=3).err
    listed = verb("--help").out
    assert re.search(r"^  guest ", listed, re.MULTILINE)
    assert not re.search(r"^  (kernel|root) ", listed, re.MULTILINE)
