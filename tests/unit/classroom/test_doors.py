"""What strangers hand in: a hostile thing is one clear line, or leaves the other answers."""

import os
import stat
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from outcast import archive
from outcast.errors import InputError
from outcast.uses.classroom import packed
from outcast.uses.classroom.answers import read_answers
from outcast.uses.classroom.exercise import load_exercise
from tests.golden.class_folder import EXERCISE

LIMIT_S = 60.0
"""A loaded machine takes a tenth; what hangs takes more."""

GOOD = "lone_goodput: 361.8\ncause: ports\nwhy: Because the ports take turns in losing.\n"
LAUGHS = "".join(
    f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)
)
DEEP = "[" * 5000 + "]" * 5000

ANSWERS: dict[str, tuple[bytes, str]] = {
    "an alias bomb": (
        f"lost:\n  a: &a [x, x]\n  {LAUGHS.replace(chr(10), chr(10) + '  ')}\n".encode(),
        "values",
    ),
    "a long key": (b"x" * 300 + b": 1\n", "no such question"),
    "9000 keys": (b"".join(b"k%d: 1\n" % n for n in range(9000)), "8995 more keys"),
}
"""What stands beside good answers, and a word of what is said."""

WHOLE_ANSWERS: dict[str, tuple[bytes, str]] = {
    "10^6 keys": (b"".join(b"k%d: 1\n" % n for n in range(10**6)), "larger than 1 MiB"),
    "UTF-16": (GOOD.encode("utf-16"), "UTF-8"),
    "a list": (b"- 1\n", "allowed is a mapping"),
    "nothing but depth": (DEEP.encode(), "levels deep"),
}


def a_member(name: str, kind: int = stat.S_IFREG, content: bytes = b"x") -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as held:
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr = 3, (kind | 0o777) << 16
            held.writestr(info, content, zipfile.ZIP_DEFLATED)

    return make


def many(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as held:
        for number in range(100_001):
            held.writestr(zipfile.ZipInfo(str(number)), b"")


def a_record(text: str) -> Callable[[Path], None]:
    """An archive with this text as its record."""

    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as held:
            held.writestr("outcast.json", text)

    return make


NAMES = "allowed are regular files"
ARCHIVES: dict[str, tuple[Callable[[Path], object], str]] = {
    "..": (a_member("../evil"), NAMES),
    ".. inside": (a_member("runs/../../evil"), NAMES),
    "absolute": (a_member("/etc/evil"), NAMES),
    "300 characters": (a_member("x" * 300), NAMES),
    "a control character": (a_member("a\x1b[2Jb"), NAMES),
    "a direction mark": (a_member("a\u202eb"), NAMES),
    "a link": (a_member("answers.yaml", stat.S_IFLNK, b"/etc/passwd"), NAMES),
    "a device": (a_member("answers.yaml", stat.S_IFCHR), NAMES),
    "a FIFO": (a_member("answers.yaml", stat.S_IFIFO), NAMES),
    "a bomb": (a_member("bomb", content=bytes(200 << 20)), "expand to"),
    "100,001 files": (many, "allowed are 100000 files"),
    "no record": (a_member("notes.txt"), "no "),
    "a record that is a list": (a_record("[]"), "a mapping"),
    "a record with NaN": (a_record('{"format": NaN}'), "not a number of JSON"),
    "a deep record": (a_record(DEEP), "levels deep"),
    "a record of another version": (a_record('{"format": 99}'), "another version"),
    "a record in UTF-16": (a_record('{"format": 1}'.encode("utf-16").decode("latin-1")), "JSON"),
    "a record with a name that leads out": (
        a_record('{"format": 1, "outcast": "0", "files": {"../x": "0"}}'),
        "",
    ),
    "text": (lambda path: path.write_text("PK"), "not a whole zip file"),
    "nothing": (lambda path: path.touch(), "not a whole zip file"),
    "a folder": (lambda path: path.mkdir(), "is a folder"),
    "a pipe": (lambda path: os.mkfifo(path), "is a FIFO"),
}


@pytest.fixture(autouse=True)
def _in_time():
    began = time.monotonic()
    yield
    assert time.monotonic() - began < LIMIT_S


def require_line(error: Exception, said: str) -> None:
    """One clear line: it names what is wrong, and can be shown on a terminal."""
    text = str(error)
    assert said in text
    assert len(text.splitlines()) == 1
    assert text.isprintable()
    assert len(text) < 1000


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_leaves_the_others_as_they_are(name, tmp_path):
    content, said = ANSWERS[name]
    (tmp_path / "answers.yaml").write_bytes(GOOD.encode() + content)
    found = read_answers(tmp_path, load_exercise(EXERCISE).questions)
    assert {"lone_goodput", "cause", "why"} <= found.given.keys()
    assert "lost" not in found.given
    assert any(said in line for line in found.missing), found.missing
    for line in found.missing:
        require_line(InputError(line), "")


@pytest.mark.parametrize("name", WHOLE_ANSWERS)
def test_answers_that_cannot_be_read_are_one_line(name, tmp_path):
    content, said = WHOLE_ANSWERS[name]
    (tmp_path / "answers.yaml").write_bytes(content)
    found = read_answers(tmp_path, load_exercise(EXERCISE).questions)
    assert found.given == {}
    (line,) = found.missing
    require_line(InputError(line), said)


@pytest.mark.parametrize("unpack", [packed.unpack, archive.unpack], ids=["submission", "run"])
@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_is_refused_in_one_line(name, unpack, tmp_path):
    make, said = ARCHIVES[name]
    if "record" in name and unpack is packed.unpack:
        return  # only an archive has one
    make(tmp_path / "evil.zip")
    inner = tmp_path / "folder/in"
    inner.mkdir(parents=True)
    with pytest.raises(InputError) as refused:
        unpack(tmp_path / "evil.zip", inner)
    if unpack is packed.unpack and name == "100,001 files":
        said = "a packed submission has at most"
    require_line(refused.value, said)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil.zip", "folder"]
    assert os.listdir(tmp_path / "folder") == ["in"]
