from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from outcast.engines.kernel.source import Archive, Source, from_tarball
from outcast.errors import CommandError, InputError, KernelError

TARGETS = """\
http://archive.example/debian-security/ bookworm-security main
http://archive.example/debian/ bookworm-updates main
http://archive.example/debian/ bookworm main
http://other.example/debian/ bookworm contrib
"""
FOUND = """\
linux-source - Linux kernel source (meta-package)
linux-source-7.9 - Linux kernel source for version 7.9 with Debian patches
linux-source-7.10 - Linux kernel source for version 7.10 with Debian patches
linux-source-6.12 - Linux kernel source for version 6.12 with Debian patches
"""


class FakeApt:
    """Answers as apt does, and notes which sources were in force at each update."""

    def __init__(self, found: str = FOUND, unreachable: Sequence[str] = ()) -> None:
        self.found = found
        self.unreachable = unreachable
        self.sources: list[str] = []

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> str:
        match list(argv[:2]):
            case ["apt-get", "indextargets"]:
                assert not environment
                return TARGETS
            case ["apt-get", "update"]:
                self.sources.append((cwd / "sources/ours.sources").read_text())
                for suite in self.unreachable:
                    if f"Suites: {suite}\n" in self.sources[-1]:
                        raise CommandError(argv, 100, f"no Release file for {suite}")
            case ["apt-cache", "search"]:
                return self.found
            case ["apt-cache", "show"]:
                return f"Package: {argv[-1]}\nVersion: 7.10.3-1~bpo13+1\n"
            case ["apt-get", "download"]:
                assert argv[2] == "linux-source-7.10=7.10.3-1"
                (cwd / "linux-source.deb").write_bytes(b"deb")
        return ""


def archive(tmp_path: Path, apt: FakeApt, keyrings: Sequence[Path] = ()) -> Archive:
    folder = tmp_path / "apt"
    folder.mkdir()
    return Archive(folder, apt, ["some-backports"], keyrings)


def test_the_newest_is_the_highest_version_not_the_last_name(tmp_path: Path) -> None:
    apt = FakeApt()
    assert archive(tmp_path, apt).newest() == Source("linux-source-7.10", "7.10.3-1~bpo13+1")


def test_the_address_is_that_of_the_machines_own_plain_suite(tmp_path: Path) -> None:
    apt = FakeApt()
    keyring = tmp_path / "keys.gpg"
    keyring.touch()
    archive(tmp_path, apt, [tmp_path / "no.gpg", keyring]).newest()
    (source,) = apt.sources
    assert source.splitlines() == [
        "Types: deb",
        "URIs: http://archive.example/debian/",
        "Suites: some-backports",
        "Components: main",
        f"Signed-By: {keyring}",
    ]


def test_the_machines_own_suites_serve_where_the_named_one_does_not(tmp_path: Path) -> None:
    apt = FakeApt(unreachable=["some-backports"])
    assert archive(tmp_path, apt).newest().name == "linux-source-7.10"
    assert "Suites: bookworm-security\n" in apt.sources[1]
    assert "contrib" not in apt.sources[1]


def test_an_unreachable_archive_is_one_line(tmp_path: Path) -> None:
    apt = FakeApt(unreachable=["some-backports", "bookworm"])
    with pytest.raises(KernelError, match="cannot be read"):
        archive(tmp_path, apt).newest()


def test_a_package_can_be_named_and_must_exist(tmp_path: Path) -> None:
    apt = FakeApt()
    ours = archive(tmp_path, apt)
    assert ours.newest("linux-source-6.12").name == "linux-source-6.12"
    with pytest.raises(KernelError, match=r"no package linux-source-5\.10 .*there is .*7\.9"):
        ours.newest("linux-source-5.10")


def test_nothing_found_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="--suite"):
        archive(tmp_path, FakeApt(found="")).newest()


def test_fetching_gives_the_package(tmp_path: Path) -> None:
    ours = archive(tmp_path, FakeApt())
    assert ours.fetch(Source("linux-source-7.10", "7.10.3-1")).read_bytes() == b"deb"


def test_a_tarball_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "linux.tar.xz"
    path.write_bytes(b"one")
    first = from_tarball(path)
    path.write_bytes(b"two")
    assert first.version != from_tarball(path).version
    with pytest.raises(InputError, match="No such file"):
        from_tarball(tmp_path / "none")
