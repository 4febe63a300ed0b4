import io
import shutil
import tarfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outcast.engines import shipped
from outcast.engines.kernel import bench, build, cache, programs
from outcast.engines.kernel.bench import Bench
from outcast.engines.kernel.programs import Programs
from outcast.engines.kernel.recipe import Recipe
from outcast.engines.root.cache import Root
from outcast.engines.root.lock import Kind
from outcast.errors import CommandError, FeatureMissingError, InputError, KernelError, RootError
from tests import records

CONFIGURED = "CONFIG_NET=y\n"


class FakePrograms:
    """Does to the file system what tar, patch, make and strip do."""

    def __init__(self, failing: str = "", configured: str = CONFIGURED) -> None:
        self.failing = failing
        self.configured = configured
        self.ran: list[str] = []

    def run(self, argv: Sequence[str], *, cwd: Path, environment=None, on_line=None) -> str:
        what = f"{argv[0]} {argv[-1]}" if argv[0] == "make" else argv[0]
        self.ran.append(what)
        if argv[0] == "make":
            # Their versions would get into the configuration, which is in the program.
            assert {"RUSTC=none", "PAHOLE=none"} <= set(argv)
        if what == self.failing:
            raise CommandError(argv, 2, "1 out of 1 hunk FAILED")
        output = next((Path(each[2:]) for each in argv if each.startswith("O=")), None)
        match what:
            case "tar":
                (cwd / "arch/um").mkdir(parents=True)
                (cwd / "arch/um/Kconfig").touch()
                (cwd / "net/ipv4").mkdir(parents=True)
                (cwd / "net/ipv4/tcp_cubic.c").write_text("cubic")
                (cwd / "net/ipv4/tcp_cubic.o").write_text("object")
                (cwd / "Makefile").touch()
            case "make allnoconfig":
                (output / ".config").write_text(self.configured)
            case "make linux":
                assert environment["KBUILD_BUILD_VERSION"] == "1"
                for line in ("  CC      init/main.o", "make[1]: Entering", "  LD      vmlinux"):
                    on_line(line)
                (output / "linux").write_text("elf")
                (output / "vmlinux.symvers").write_text("0x0\ttcp_slow_start\tvmlinux\n")
            case "make modules_prepare":
                (output / "include/generated").mkdir(parents=True)
                (output / "include/generated/autoconf.h").touch()
            case "strip":
                Path(argv[2]).write_text("stripped")
        return ""


def deb(path: Path, name: str) -> Path:
    """A Debian package with one file."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        info = tarfile.TarInfo(f"./usr/src/{name}")
        info.size = 2
        archive.addfile(info, io.BytesIO(b"xz"))
    member = data.getvalue()
    header = f"{'data.tar':<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(member):<10}`\n"
    path.write_bytes(b"!<arch>\n" + header.encode() + member)
    return path


PINNED = records.package("linux-source-7.3", "7.3.4-1")


class FakeSupply:
    """Gives a package with a source, and roots."""

    source = PINNED

    def __init__(self, name: str = "linux-source-7.3.tar.xz", without: str = "") -> None:
        self.name = name
        self.without = without
        self.fetched = 0

    def fetch_source(self, into: Path) -> Path:
        self.fetched += 1
        return deb(into / "source.deb", self.name)

    def provide_root(self, kind: Kind) -> Root:
        if kind == self.without:
            raise RootError("the lock's mirror is away")
        return Root(Path("/"), "abc", "def", {})


@pytest.fixture
def recipe(tmp_path) -> Recipe:
    fragment = tmp_path / "fragment.config"
    fragment.write_text(CONFIGURED)
    patch = tmp_path / "0001-x.patch"
    patch.touch()
    return Recipe(fragment, (patch,))


@pytest.fixture
def tarball(tmp_path) -> Path:
    path = tmp_path / "linux.tar.xz"
    path.write_bytes(b"xz")
    return path


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "kernels"


@pytest.fixture
def make(folder, recipe, tarball) -> Callable[..., cache.Kernel]:
    """Builds into `folder` what is not said to be otherwise."""
    usual = {"tarball": tarball, "folder": folder, "recipe": recipe}
    return lambda **given: build.build(**usual | {"run": FakePrograms()} | given)


@pytest.fixture(autouse=True)
def boots(monkeypatch) -> None:
    said = {"release": "7.3.4", "congestion_controls": ["cubic", "reno"]}
    monkeypatch.setattr(build, "_check", lambda program, sees: said)


@pytest.fixture(autouse=True)
def locked(monkeypatch) -> None:
    """The lock's compiler works."""

    def set_up(workshop: Path, provide_root: object, run: Programs, *, needs_lock: bool) -> Bench:
        folder = workshop / "build"
        folder.mkdir()
        return Bench(folder, run, "gcc-12 12.2, packages abc")

    monkeypatch.setattr(bench, "set_up", set_up)
    monkeypatch.setattr(bench, "locked_compiler", lambda: "gcc-12 12.2, packages abc")
    monkeypatch.setattr(build, "Supply", lambda *places: FakeSupply())


def test_a_build_ends_in_the_cache(folder, make):
    run = FakePrograms()
    seen: list[build.Progress] = []
    kernel = make(run=run, on_progress=seen.append)
    assert run.ran == [
        *("tar", "patch", "make allnoconfig"),
        *("make linux", "make modules_prepare", "strip"),
    ]
    assert kernel.compiler == "gcc-12 12.2, packages abc"
    assert kernel.congestion_controls == ("cubic", "reno")
    assert kernel.program.read_text() == "stripped"
    assert kernel.release == "7.3.4"
    assert cache.find_all(folder) == [kernel]
    assert [each.stage for each in seen] == [*("fetch", "unpack", "configure", "compile", "check")]
    assert [each.done for each in seen if each.stage == "compile"] == [1]


def test_what_was_built_is_not_built_again(make):
    first = make()
    run = FakePrograms()
    assert make(run=run) == first
    assert run.ran == []
    make(run=run, again=True)
    assert "make linux" in run.ran


def test_the_guests_root_is_made_while_the_compiler_works(make):
    compiles, made = threading.Event(), threading.Event()

    class Supply(FakeSupply):
        def provide_root(self, kind: Kind) -> Root:
            assert compiles.wait(10.0)
            made.set()
            return super().provide_root(kind)

    def on_progress(progress: build.Progress) -> None:
        if progress.stage == "compile":
            compiles.set()
            assert made.wait(10.0)

    make(supply=Supply(), on_progress=on_progress)


def test_what_the_wheel_brings_is_not_built(folder, tmp_path, monkeypatch, make):
    other = tmp_path / "other" / "kernels"
    first = make(folder=other)

    def unpack(target: Path) -> bool:
        assert target == folder / first.key
        shutil.copytree(other / first.key, target)
        return True

    monkeypatch.setattr(shipped, "provide", unpack)
    run = FakePrograms()
    brought = make(run=run)
    assert brought == replace(first, program=folder / first.key / "linux")
    assert run.ran == []
    monkeypatch.setattr(shipped, "provide", None)  # not asked for what is built anew
    make(run=run, again=True)
    assert "make linux" in run.ran


def interrupt(progress: build.Progress) -> None:
    if progress.stage == "compile":
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (
            {"run": FakePrograms("patch")},
            KernelError,
            r"0001-x\.patch does not fit this source: 1 o",
        ),
        ({"run": FakePrograms("make linux")}, CommandError, "hunk FAILED"),
        ({"run": FakePrograms("tar")}, CommandError, "tar"),
        ({"on_progress": interrupt}, KeyboardInterrupt, None),
        (
            {"tarball": None, "supply": FakeSupply("config.tar.xz")},
            KernelError,
            r"source\.deb: the package has no tarball",
        ),
    ],
    ids=["patch", "compiler", "tar", "interruption", "no source"],
)
def test_a_failure_leaves_nothing(folder, given, error, said, make):
    with pytest.raises(error, match=said):
        make(**given)
    assert [path.name for path in folder.iterdir()] == ["lock"]


def test_a_source_that_does_not_take_the_configuration(make):
    run = FakePrograms(configured="# CONFIG_NET is not set\n")
    with pytest.raises(KernelError, match="CONFIG_NET=y"):
        make(run=run)
    assert "make linux" not in run.ran


def test_a_patch_that_may_be_missing_is_left_out_where_it_does_not_fit(recipe, make):
    optional = replace(recipe, optional=("0001-x.patch",))
    run = FakePrograms("patch")
    make(recipe=optional, run=run)
    assert run.ran.count("patch") == 1
    run = FakePrograms()
    make(recipe=optional, run=run, again=True)
    assert run.ran.count("patch") == 2


def test_missing_programs_are_named_with_their_packages(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(FeatureMissingError, match=r"flex.*install the packages.*xz-utils"):
        programs.require()


def test_a_program_that_fails_says_its_last_lines(tmp_path):
    run = programs.Programs()
    script = "for i in $(seq 100); do echo line $i; done; exit 3"
    with pytest.raises(CommandError, match=r"exit status 3: .*line 99 \| line 100"):
        run.run(["sh", "-c", script], cwd=tmp_path)


def test_programs_get_a_clean_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("MAKEFLAGS", "--jobs=1")
    monkeypatch.setenv("http_proxy", "http://proxy.example")
    told = programs.Programs().run(["env"], cwd=tmp_path, environment={"A": "1"})
    assert "MAKEFLAGS" not in told
    assert "A=1\n" in told
    assert "http_proxy=" in told


def test_what_modules_are_compiled_against_is_kept(make):
    kernel = make()
    kept = {str(p.relative_to(kernel.headers)) for p in kernel.headers.rglob("*") if p.is_file()}
    assert kept == {
        *("source/Makefile", "source/arch/um/Kconfig", "source/net/ipv4/tcp_cubic.c"),
        *("output/.config", "output/Module.symvers", "output/include/generated/autoconf.h"),
    }


def test_ones_own_fragment_and_patch_make_another_kernel(folder, tmp_path, recipe, make):
    ours = make()
    fragment, patch = tmp_path / "nv.config", tmp_path / "mine.patch"
    fragment.write_text("CONFIG_TCP_CONG_NV=y\n")
    patch.write_text("-a\n+b\n")
    run = FakePrograms(configured=CONFIGURED + "CONFIG_TCP_CONG_NV=y\n")
    own = recipe.with_own([fragment], [patch])
    theirs = make(recipe=own, run=run)
    assert run.ran.count("patch") == 2
    # gdb shall know a kernel that somebody configured; ours is the same file everywhere.
    assert (ours.program.read_text(), theirs.program.read_text()) == ("stripped", "elf")
    assert theirs.own == ("nv.config", "mine.patch")
    assert theirs.key != ours.key
    assert cache.read(folder / ours.key) == ours
    assert cache.find_key(theirs.key[:8], folder) == theirs
    assert {kernel.key for kernel in cache.find_all(folder)} == {ours.key, theirs.key}
    with pytest.raises(FeatureMissingError, match=f"abcdef .*{theirs.key}"):
        cache.find_key("abcdef", folder)
    patch.write_text("-a\n+c\n")
    assert recipe.with_own([fragment], [patch]).digest != theirs.recipe


def test_ones_own_patch_that_does_not_fit_is_named_with_what_patch_says(tmp_path, recipe, make):
    patch = tmp_path / "bbr3.patch"
    patch.touch()

    class OursFits(FakePrograms):
        def run(self, argv: Sequence[str], **options: Any) -> str:
            if argv[0] == "patch" and Path(argv[-1]).name == patch.name:
                raise CommandError(argv, 1, "patching file net/ipv4/tcp_bbr.c | Hunk #1 FAILED")
            return super().run(argv, **options)

    own = recipe.with_own([], [patch])
    with pytest.raises(KernelError, match=r"bbr3\.patch does not fit .*tcp_bbr\.c \| Hunk #1"):
        make(recipe=own, run=OursFits())


@pytest.mark.parametrize(
    ("own", "effective", "lacking"),
    [
        ("CONFIG_X=y\n", "CONFIG_NET=y\n", "CONFIG_X=y"),
        ("# CONFIG_NET is not set\n", "# CONFIG_NET is not set\n", ""),
        ("CONFIG_NET=n\n", "# CONFIG_NET is not set\n", ""),
        ("CONFIG_NET=y\nCONFIG_NET=n\n", "", ""),
        ("CONFIG_X=3\n", "CONFIG_NET=y\nCONFIG_X=4\n", "CONFIG_X=3"),
        ("", "", "CONFIG_NET=y"),
    ],
)
def test_a_fragment_of_ones_own_comes_last(tmp_path, recipe, own, effective, lacking):
    fragment = tmp_path / "own.config"
    fragment.write_text(own)
    both = recipe.with_own([fragment], [])
    assert both.configuration() == f"{CONFIGURED}\n{own}"
    if not lacking:
        both.require_configured(effective)
        return
    with pytest.raises(KernelError, match=rf"with own\.config does not take {lacking};"):
        both.require_configured(effective)


def test_a_fragment_that_cannot_be_read_is_refused(tmp_path, recipe):
    with pytest.raises(InputError, match="there is no such file"):
        recipe.with_own([tmp_path / "none.config"], [])
    with pytest.raises(InputError, match="a folder; allowed is a regular file"):
        recipe.with_own([], [tmp_path])


def test_the_source_is_that_of_the_lock(folder, recipe, make):
    run, supply = FakePrograms(), FakeSupply()
    kernel = make(tarball=None, run=run, supply=supply)
    assert (kernel.source, kernel.version) == ("linux-source-7.3", "7.3.4-1")
    assert cache.find(folder, recipe, PINNED) == kernel
    # What is there is found while another kernel is being built.
    with cache.workshop(folder):
        assert make(tarball=None, run=run, supply=supply) == kernel
    assert supply.fetched == 1


def test_the_guests_root_is_needed_for_the_lock_and_not_for_ones_own_source(make):
    supply = FakeSupply(without="runtime")
    run = FakePrograms()
    with pytest.raises(RootError, match="mirror is away"):
        make(tarball=None, run=run, supply=supply, on_progress=lambda progress: time.sleep(0.1))
    assert "make linux" not in run.ran
    make(run=run, supply=supply)


def test_another_source_is_not_the_default(folder, recipe, make):
    own = make()
    assert cache.find(folder, recipe, PINNED) is None
    assert cache.find_key(own.key, folder) == own
