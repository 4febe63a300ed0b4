"""The guest's root: packages of a small archive are fetched, unpacked, kept and checked."""

import errno
import os
import socket
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from outcast.engines.kernel.programs import Programs
from outcast.engines.root import build, cache, contents, fetch, files_list, layout, lock, places
from outcast.engines.root.cache import Root
from outcast.engines.root.contents import Content
from outcast.engines.root.files_list import TIME_S, Item
from outcast.engines.root.layout import _compare
from outcast.engines.root.lock import Lock
from outcast.engines.root.places import Named
from outcast.engines.root.unpack import Tree
from outcast.engines.workshop import workshop
from outcast.errors import CommandError, FeatureMissingError, InputError, RootError
from tests.unit.root_archive import debian_package, folder, link, lock_of, member, served, store

DASH = debian_package(
    [
        folder("./bin"),
        member("./bin/dash", b"\x7fELF dash", mode=0o755),
        link("./bin/sh", "dash"),
        member("./usr/share/doc/dash/copyright", b"BSD"),
        member("./usr/share/doc/dash/changelog.gz", b"long"),
        member("./usr/share/man/man1/dash.1.gz", b"long"),
    ]
)
LIBC = debian_package(
    [
        member("./lib/x86_64-linux-gnu/libc.so.6", b"\x7fELF libc", mode=0o755),
        link("./lib64/ld.so", "/lib/x86_64-linux-gnu/libc.so.6"),
        member("./usr/share/libc-bin/nsswitch.conf", b"hosts: files\n"),
        member("./usr/bin/mawk", b"\x7fELF mawk", mode=0o4755),
        member("./usr/bin/again", type=tarfile.LNKTYPE, linkname="./usr/bin/mawk", mode=0o755),
    ]
)
PACKAGES = {"dash": DASH, "libc6": LIBC}


class FakeApt(Programs):
    """Answers as apt would on a machine with these sources, or as one without apt."""

    def __init__(self, targets: str = "", snapshots: str = "", lacks: bool = False) -> None:
        self.targets, self.snapshots, self.lacks = targets, snapshots, lacks

    def run(self, argv: Sequence[str], **_: Any) -> str:
        if self.lacks:
            raise FeatureMissingError(f"{argv[0]} is missing")
        return self.snapshots if argv[0] == "apt-config" else self.targets


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch) -> None:
    monkeypatch.delenv(places.MIRROR_VARIABLE, raising=False)
    monkeypatch.setattr(fetch, "PAUSES_S", ())


@pytest.fixture(scope="module")
def mirror(tmp_path_factory) -> Iterator[str]:
    with served(store(tmp_path_factory.mktemp("mirror"), PACKAGES)) as address:
        yield address


@pytest.fixture(scope="module")
def whole_lock(mirror, tmp_path_factory) -> Lock:
    """A lock of the small packages with the hash of what comes of them."""
    workshop = tmp_path_factory.mktemp("workshop")
    where = places.Places(mirrors=(mirror,))
    _, listed = build.unpack("runtime", lock_of(PACKAGES), where, workshop, FakeApt())
    return lock_of(PACKAGES, {"runtime": files_list.digest(listed)})


def built(pinned: Lock, folder: Path, mirror: str | None = None, **options: Any) -> Root:
    places = {name: options.pop(name) for name in ("packages", "snapshot") if name in options}
    apt = FakeApt(lacks=options.pop("lacks_apt", False))
    named = Named(mirror, **places)
    return build.build(named=named, pinned=pinned, folder=folder, run=apt, **options)


@pytest.fixture
def root(mirror, whole_lock, tmp_path) -> Root:
    return built(whole_lock, tmp_path / "roots", mirror)


def left_in(roots: Path) -> set[str]:
    return {path.name for path in roots.iterdir()} - {"lock"}


def test_a_root_is_fetched_unpacked_and_found_again(root, whole_lock, tmp_path):
    assert (root.folder / "bin/sh").read_bytes() == b"\x7fELF dash"
    assert os.readlink(root.folder / "bin") == "usr/bin"
    assert os.readlink(root.folder / "usr/lib64/ld.so") == "../lib/x86_64-linux-gnu/libc.so.6"
    assert (root.folder / "usr/share/doc/dash/copyright").read_bytes() == b"BSD"
    assert not (root.folder / "usr/share/doc/dash/changelog.gz").exists()
    assert not (root.folder / "usr/share/man").exists()
    assert os.readlink(root.folder / "usr/bin/awk") == "mawk"
    assert not (root.folder / "usr/bin/nc").is_symlink()
    assert (root.folder / "etc/nsswitch.conf").read_text() == "hosts: files\n"
    assert (
        b"/usr/lib/x86_64-linux-gnu/libc.so.6\0" in (root.folder / "etc/ld.so.cache").read_bytes()
    )
    assert root.packages == {"dash": "1:1.0-1", "libc6": "1:1.0-1"}
    assert root.lock == whole_lock.digest("runtime")
    assert cache.find("runtime", tmp_path / "roots", whole_lock) == root
    assert cache.find_key(root.key[:6], tmp_path / "roots") == root
    cache.verify(root, every_byte=True)


def test_modes_times_and_hard_links_are_the_same_on_every_machine(root):
    for item in root.list_items():
        status = (root.folder / item.path).lstat()
        assert status.st_mtime_ns == TIME_S * 10**9, item.path
        if not item.target:
            assert status.st_mode & 0o7777 == item.mode, item.path
        if item.sha256:
            assert status.st_nlink == 1
    assert (root.folder / "usr/bin/again").stat().st_mode & 0o7777 == 0o755


def test_umask_does_not_reach_a_root(mirror, whole_lock, tmp_path):
    before = os.umask(0o077)
    try:
        root = built(whole_lock, tmp_path, mirror)
    finally:
        os.umask(before)
    cache.verify(root, every_byte=True)


def test_a_root_that_comes_out_otherwise_is_not_kept(mirror, tmp_path):
    other = lock_of(PACKAGES, {"runtime": "0" * 64})
    with pytest.raises(RootError, match=r"has the key [0-9a-f]{20} instead of 0{20}"):
        built(other, tmp_path, mirror)
    assert left_in(tmp_path) == set()


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda at: (at / "usr/bin/dash").write_bytes(b"\x7fELF dasH"), "usr/bin/dash"),
        (lambda at: (at / "usr/bin/dash").chmod(0o700), "usr/bin/dash"),
        (lambda at: (at / "usr/bin/new").touch(), "usr/bin"),
        (lambda at: (at / "usr/bin/dash").unlink(), "usr/bin"),
        (lambda at: (at.parent / "files.tsv").write_text(""), "files.tsv"),
    ],
    ids=["changed", "mode", "added", "removed", "list"],
)
def test_a_damaged_root_is_refused_at_once(root, damage, what):
    damage(root.folder)
    with pytest.raises(RootError, match=f"is damaged: {what} is not as it was kept; outcast root"):
        cache.verify(root)


def test_a_link_that_was_turned_is_noticed(root):
    path = root.folder / "usr/bin/sh"
    path.unlink()
    path.symlink_to("mawk")
    os.utime(path.parent, (TIME_S, TIME_S))
    with pytest.raises(RootError, match="usr/bin/sh is not as it was kept"):
        cache.verify(root)


def test_what_hides_behind_its_size_and_time_is_found_by_hashing(root):
    path = root.folder / "usr/bin/dash"
    path.write_bytes(b"\x7fELF DASH")
    os.utime(path, (TIME_S, TIME_S))
    cache.verify(root)
    with pytest.raises(RootError, match="usr/bin/dash is not as it was kept"):
        cache.verify(root, every_byte=True)


def test_again_makes_a_damaged_root_anew(root, mirror, whole_lock, tmp_path):
    (root.folder / "usr/bin/dash").write_bytes(b"broken")
    again = built(whole_lock, tmp_path / "roots", mirror, again=True)
    assert again == root
    cache.verify(again, every_byte=True)
    assert left_in(tmp_path / "roots") == {root.key}


def test_a_package_that_is_gone_comes_from_the_snapshot_archive(whole_lock, tmp_path):
    new = store(tmp_path / "new", {"dash": DASH})
    old = store(tmp_path / "old/20260711T101637Z", PACKAGES).parent
    with served(new) as mirror, served(old) as snapshots:
        built(whole_lock, tmp_path / "roots", mirror, snapshot=f"{snapshots}/@SNAPSHOTID@/")


def test_a_package_that_is_nowhere_is_named_with_the_remedies(whole_lock, tmp_path):
    with served(store(tmp_path / "new", {"dash": DASH})) as mirror:
        with pytest.raises(RootError) as raised:
            built(whole_lock, tmp_path / "roots", mirror)
        assert str(raised.value) == (
            "the package libc6 1:1.0-1 (libc6_1%3a1.0-1_amd64.deb) cannot be fetched: "
            f"{mirror}: HTTP 404 File not found; {fetch.REMEDY}"
        )
    assert left_in(tmp_path / "roots") == set()


def test_another_file_than_the_pinned_one_is_refused(whole_lock, tmp_path):
    at = store(tmp_path / "mirror", PACKAGES)
    at.joinpath("pool/main/d/dash/dash_1:1.0-1_amd64.deb").write_bytes(DASH[:-1] + b"x")
    with served(at) as mirror, pytest.raises(RootError, match=r"dash .*its SHA-256 differs"):
        built(whole_lock, tmp_path / "roots", mirror)
    assert left_in(tmp_path / "roots") == set()


def test_a_mirror_that_nobody_runs_is_refused_in_one_line(whole_lock, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(RootError, match="Connection refused; name another mirror"):
            built(whole_lock, tmp_path, address)


def test_a_silent_mirror_is_given_up(whole_lock, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "SILENCE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RootError, match=r"nothing came for 0\.1 s"):
            built(whole_lock, tmp_path, address)


def test_a_busy_mirror_is_asked_again(mirror, whole_lock, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "PAUSES_S", (0.0,))
    real, tried = fetch._download, set[str]()

    def busy_once(address: str, *rest: object) -> None:
        if address not in tried:
            tried.add(address)
            raise fetch._Unreachable("busy")
        real(address, *rest)

    monkeypatch.setattr(fetch, "_download", busy_once)
    built(whole_lock, tmp_path, mirror)
    assert len(tried) == 2


def test_a_folder_of_packages_needs_no_network(whole_lock, tmp_path):
    handed_in = tmp_path / "packages"
    handed_in.mkdir()
    # Browsers and wget save the names of an epoch differently.
    (handed_in / "dash_1:1.0-1_amd64.deb").write_bytes(DASH)
    (handed_in / "libc6_1%3a1.0-1_amd64.deb").write_bytes(LIBC)
    built(whole_lock, tmp_path / "roots", packages=handed_in, lacks_apt=True)


def test_a_folder_with_another_file_is_named(whole_lock, tmp_path):
    handed_in = tmp_path / "packages"
    handed_in.mkdir()
    os.mkfifo(handed_in / "dash_1:1.0-1_amd64.deb")
    (handed_in / "libc6_1:1.0-1_amd64.deb").write_bytes(LIBC)
    with pytest.raises(RootError, match=r"dash_1:1\.0-1_amd64\.deb: cannot be read: is a FIFO"):
        built(whole_lock, tmp_path, packages=handed_in)


def test_a_full_disk_leaves_nothing(mirror, whole_lock, tmp_path, monkeypatch):
    def full(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("outcast.engines.root.unpack.os.fchmod", full)
    with pytest.raises(RootError, match=f"{tmp_path}: No space left on device; both roots take"):
        built(whole_lock, tmp_path, mirror)
    assert left_in(tmp_path) == set()


def test_a_root_that_another_process_makes_is_waited_for(mirror, whole_lock, tmp_path):
    folder = tmp_path / "roots"
    told: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        made = [
            pool.submit(
                build.build,
                named=Named(mirror),
                pinned=whole_lock,
                folder=folder,
                run=FakeApt(),
                on_progress=lambda progress: told.append(progress.stage),
            )
            for _ in range(2)
        ]
    assert made[0].result() == made[1].result()
    # The second one found it made, whether it came early enough to wait or not.
    assert told.count("check") == 1


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / "unfinished-x/unpacked").mkdir(parents=True)
    with workshop(tmp_path):
        assert not (tmp_path / "unfinished-x").exists()


def test_apt_names_the_mirrors_and_the_snapshot_archive(tmp_path):
    apt = FakeApt(
        "http://a.example/debian-security/ main\nhttp://a.example/debian/ main\n"
        "http://a.example/debian contrib\ncdrom:[x]/ main\nhttp://a.example/debian main\n",
        "ADDRESS='https://s.example/archive/@SNAPSHOTID@/'\n",
    )
    where = places.find(apt, tmp_path, "20260711T101637Z")
    assert where.addresses == (
        "http://a.example/debian",
        "http://a.example/debian-security",
        "https://s.example/archive/20260711T101637Z",
    )


def test_a_machine_without_apt_needs_a_place(tmp_path, monkeypatch):
    with pytest.raises(FeatureMissingError, match="--mirror URL or OUTCAST_MIRROR"):
        places.find(FakeApt(lacks=True), tmp_path, "")
    monkeypatch.setenv(places.MIRROR_VARIABLE, "http://b.example/debian/")
    assert places.find(FakeApt(lacks=True), tmp_path, "").mirrors == ("http://b.example/debian",)
    with pytest.raises(InputError, match="no such folder"):
        places.find(FakeApt(), tmp_path, "", Named(packages=tmp_path / "none"))
    with pytest.raises(InputError, match="--mirror or OUTCAST_MIRROR: file:///x: not the address"):
        places.find(FakeApt(), tmp_path, "", Named(mirror="file:///x"))


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([member("../../outside", b"x")], "does not lead to a place in the root"),
        ([member("/etc/x\ny", b"x")], "does not lead to a place"),
        ([member("dev/null", type=tarfile.CHRTYPE)], "is no folder, file or link"),
        ([member("a", type=tarfile.LNKTYPE, linkname="../b")], "not a Debian package"),
    ],
    ids=["upwards", "control", "device", "hard-link"],
)
def test_hostile_packages_are_refused(members, why, tmp_path):
    path = tmp_path / "x.deb"
    path.write_bytes(debian_package(members))
    with pytest.raises(RootError, match=why):
        list(contents.of_debian_package(path))


@pytest.mark.parametrize("data", [b"", b"PK", DASH[:100], DASH[:-30], b"!<arch>\n" + b"x" * 60])
def test_what_is_no_package_is_refused(data, tmp_path):
    path = tmp_path / "x.deb"
    path.write_bytes(data)
    with pytest.raises(RootError, match=r"x\.deb: not a Debian package that can be used"):
        list(contents.of_debian_package(path))


def test_two_packages_may_hold_one_path_only_alike(tmp_path):
    """None writes through a link of another."""
    tree = Tree(tmp_path)
    tree.add([Content("usr/x", b"same"), Content("bin", None), Content("usr/x", b"same")])
    tree.add([Content("usr/link", target="/etc")])
    for other in (Content("usr/x", b"other"), Content("usr/link/passwd", b"root::0:0")):
        with pytest.raises(RootError, match=r"two packages have another usr/(x|link)"):
            tree.add([other])


def test_a_program_gets_the_user_that_it_asks_for(tmp_path):
    tree = Tree(tmp_path)
    tree.add([Content("usr/share/base-passwd/passwd.master", b"root:*:0:0::/root:/bin/bash\n")])
    tree.add([Content("usr/bin/tcpdump", b"x", True)])
    tree.finish()
    lines = (tmp_path / "etc/passwd").read_text().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["root", "tcpdump"]


def test_a_wheel_is_unpacked_where_python_looks(tmp_path):
    path = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("x/__init__.py", "x-1.dist-info/RECORD", "x-1.dist-info/METADATA"):
            archive.writestr(name, name)
        archive.writestr("x-1.data/purelib/y.py", "y")
        archive.writestr("x-1.data/scripts/run", "run")
    packages = "usr/local/lib/python3.11/dist-packages"
    assert [content.path for content in contents.of_wheel(path)] == [
        f"{packages}/x/__init__.py",
        f"{packages}/x-1.dist-info/METADATA",
        f"{packages}/y.py",
    ]


def test_hostile_wheels_are_refused(tmp_path):
    path = tmp_path / "x.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../x", "x")
    with pytest.raises(RootError, match="does not lead to a place"):
        list(contents.of_wheel(path))
    path.write_bytes(b"no zip")
    with pytest.raises(RootError, match="not a wheel that can be used"):
        list(contents.of_wheel(path))


def test_pip_is_asked_for_what_no_folder_has(tmp_path):
    class FailingPip(FakeApt):
        def run(self, argv: Sequence[str], **options: object) -> str:
            assert "--require-hashes" in argv
            assert "--platform=manylinux2014_x86_64" in argv
            raise CommandError(argv, 1, "WARNING: Retrying | ERROR: No matching distribution")

    wheel = lock.Wheel(
        name="x",
        version="1",
        sha256="0" * 64,
        size=1,
        file="x-1-cp311-cp311-manylinux2014_x86_64.whl",
    )
    with pytest.raises(RootError, match=r"wheels x-1-.*\.whl: No matching distribution; give the"):
        fetch.wheels([wheel], None, tmp_path, FailingPip())


def test_a_list_of_files_is_written_and_read():
    items = [Item("usr"), Item("usr/a b", True, 3, "0" * 64), Item("usr/link", target="../x")]
    text = files_list.dumps(reversed(items))
    assert files_list.loads(text) == items
    for line in ("d\t-\t-\t-\t../x", "f\t777\t1\t0\tx", "x"):
        with pytest.raises(ValueError, match="line 1 is not one"):
            files_list.loads(line)


@pytest.mark.parametrize(
    ("path", "target", "placed"),
    [
        ("lib/x/a.so", "../../usr/lib/x/b.so", "b.so"),
        ("sbin/mount.x", "/bin/mount", "../bin/mount"),
        ("usr/bin/a", "b", "b"),
        ("etc/rmt", "/usr/sbin/rmt", "../usr/sbin/rmt"),
    ],
)
def test_links_stay_right_in_a_merged_root(path, target, placed):
    content = layout.place(Content(path, target=target))
    assert content.target == placed


def test_the_linker_finds_libraries_in_its_own_order():
    """The order of _dl_cache_libcmp, by which the linker searches its cache."""
    assert _compare("libc.so.10", "libc.so.9") > 0
    assert _compare("libm.so.6", "libm.so.6") == 0
    assert _compare("libcrypt.so.1", "libcrypto.so.3") < 0
    assert _compare("libdb-5.3.so", "libdbus-1.so.3") < 0
    assert _compare("lib2.so", "liba.so") > 0


def test_our_lock_names_files_of_one_archive_and_no_host():
    ours = lock.read()
    text = lock.PATH.read_text(encoding="utf-8")
    assert "://" not in text
    for kind in ("runtime", "build"):
        packages = ours.packages(kind)
        assert list(packages) == sorted(packages, key=lambda package: package.name)
        assert all(package.path.startswith("pool/main/") for package in packages)
        assert kind in ours.content
    names = ours.versions("runtime")
    assert {"mininet", "openvswitch-switch", "iperf", "pydantic", "os_ken"} <= set(names)
    assert not {"ryu", "numpy", "polars", "matplotlib", "gcc-12"} & set(names)
