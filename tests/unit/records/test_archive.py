"""Archives of runs: what is in them, that they are the same each time, and hostile ones."""

import hashlib
import json
import os
import shutil
import stat
import struct
import warnings
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcast
from outcast import archive
from outcast.archive import zips
from outcast.errors import InputError
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.sweep.store import reduce
from tests.golden.run_directory import analysed_run
from tests.zips import contents, rewritten, written


@pytest.fixture(scope="module")
def golden(tmp_path_factory) -> Path:
    directory = analysed_run(tmp_path_factory.mktemp("run") / "run", 20_000_000, 9, 1_000)
    (directory.path / "goodput.png").write_bytes(b"a figure")
    directory.seal(engine="virtual")
    return directory.path


@pytest.fixture
def run(golden, tmp_path) -> RunDirectory:
    return RunDirectory(shutil.copytree(golden, tmp_path / "run"))


def unpacked(file: Path, folder: Path) -> RunDirectory:
    folder.mkdir()
    archive.unpack(file, folder)
    return RunDirectory(folder / archive.RUN)


# What is in an archive.


def test_an_archive_holds_the_run(run, tmp_path):
    packed = outcast.pack(run.path, tmp_path / "run.zip")
    assert (packed.path, packed.left_out, packed.notes) == (tmp_path / "run.zip", (), ())
    again = unpacked(packed.path, tmp_path / "again")
    held = files_below(run.path)
    assert len(held) > 10
    assert held.items() <= files_below(again.path).items()
    assert packed.files == len(contents(packed.path)) == len(held) + 2
    assert Run(again).summary == Run(run).summary


def test_the_same_run_gives_the_same_bytes(run, tmp_path):
    one = outcast.pack(run.path, tmp_path / "one.zip").path.read_bytes()
    other = tmp_path / "other"
    # Made in another order, with other modes and times.
    for path in sorted(run.path.rglob("*"), reverse=True):
        target = other / path.relative_to(run.path)
        if path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
            target.chmod(0o600)
    made = run.manifest.stat().st_mtime
    os.utime(other / "manifest.json", (made, made))
    assert outcast.pack(other, tmp_path / "two.zip").path.read_bytes() == one
    os.utime(other / "manifest.json", (0, 1_795_319_999))
    with zipfile.ZipFile(outcast.pack(other, tmp_path / "two.zip").path) as packed:
        infos = packed.infolist()
        assert {info.date_time for info in infos} == {(2026, 11, 22, 12, 0, 0)}
        assert {info.external_attr >> 16 for info in infos} == {stat.S_IFREG | 0o644}


def test_a_program_stays_one_that_can_be_executed(tmp_path):
    for name, mode in (("app", 0o711), ("page", 0o666)):
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(mode)
    members = {"app": tmp_path / "app", "page": tmp_path / "page", "text": b"x"}
    zips.write(tmp_path / "a.zip", members, 1e9)
    zips.unpack(tmp_path / "a.zip", tmp_path / "in")
    modes = {name: (tmp_path / "in" / name).stat().st_mode & 0o111 for name in members}
    assert modes == {"app": 0o111, "page": 0, "text": 0}


def test_only_hashes_of_captures(run, tmp_path):
    packed = outcast.pack(run.path, tmp_path / "run.zip", captures="hashes")
    assert not [name for name in contents(packed.path) if "captures" in name]
    assert "only the hashes" in packed.notes[0]
    again = unpacked(packed.path, tmp_path / "again").read_manifest()
    assert again.dropped == {
        f"captures/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in run.captures.iterdir()
    }


def test_hashes_of_compressed_captures_are_those_of_the_captures(run, tmp_path):
    plain = {path.name: hashlib.sha256(path.read_bytes()) for path in run.captures.iterdir()}
    reduce(run, "compress")
    kept = outcast.pack(run.path, tmp_path / "kept.zip")
    assert "run/captures/s1-eth1.out.pcap.zst" in contents(kept.path)
    packed = outcast.pack(run.path, tmp_path / "run.zip", captures="hashes")
    again = unpacked(packed.path, tmp_path / "again").read_manifest()
    assert again.dropped == {f"captures/{name}": hash_.hexdigest() for name, hash_ in plain.items()}
    assert {record.file for record in again.captures} == set(again.dropped)


def test_files_that_others_made_again_go_in_and_foreign_files_do_not(run, tmp_path):
    (run.path / "goodput.png").write_bytes(b"another figure")
    (run.path / "goodput.pdf").write_bytes(b"for a paper")
    (run.path / "summary.json").write_text(run.summary.read_text() + "\n")
    (run.path / "notes.txt").write_text("mine")
    (run.path / "flows").mkdir(exist_ok=True)
    (run.path / "flows/mine.pdf").write_text("mine")
    packed = outcast.pack(run.path, tmp_path / "run.zip")
    assert packed.left_out == ("flows/mine.pdf", "notes.txt")
    again = unpacked(packed.path, tmp_path / "again")
    assert (again.path / "goodput.png").read_bytes() == b"another figure"
    assert (again.path / "goodput.pdf").read_bytes() == b"for a paper"
    assert not (again.path / "notes.txt").exists()


@pytest.mark.parametrize("name", ["config.yaml", "captures/s1-eth1.out.pcap", "counters.json"])
@pytest.mark.parametrize("what", ["changed", "missing"])
def test_a_changed_run_is_refused(name, what, run, tmp_path):
    path = run.path / name
    if what == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(InputError, match=f"{name}: {what}"):
        outcast.pack(run.path, tmp_path / "run.zip")
    assert not (tmp_path / "run.zip").exists()


# Hostile archives.


@pytest.fixture
def packed(run, tmp_path) -> dict[str, bytes]:
    return contents(outcast.pack(run.path, tmp_path / "run.zip").path)


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def refused(file: Path, folder: Path) -> str:
    """The one line of the refusal. Nothing may be written outside of the folder."""
    folder.mkdir()
    inner = folder / "in"
    inner.mkdir()
    with pytest.raises(InputError) as refusal:
        archive.unpack(file, inner)
    assert [path.name for path in folder.iterdir()] == ["in"]
    text = str(refusal.value)
    assert text.startswith(f"{file}: ")
    assert "\n" not in text
    assert str(inner) not in text
    return text


def test_a_size_that_lies_is_no_way_around_the_limit(packed, tmp_path):
    file = written(tmp_path / "bomb.zip", {"bomb": b"\0" * (1 << 20)})
    data = bytearray(file.read_bytes())
    for at in (data.index(b"PK\x03\x04") + 22, data.index(b"PK\x01\x02") + 24):
        assert struct.unpack_from("<I", data, at) == (1 << 20,)
        struct.pack_into("<I", data, at, 10)
    file.write_bytes(data)
    assert "not a whole zip file" in refused(file, tmp_path / "folder")
    assert not [path for path in tmp_path.rglob("bomb") if path.stat().st_size > 10]


def test_a_huge_list_of_files_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(zips, "MOST_LIST_BYTES", 1 << 17)
    file = written(tmp_path / "long.zip", {f"{number:0200}": b"" for number in range(1000)})
    assert "its list of files is too long" in refused(file, tmp_path / "folder")


def say(held: dict[str, bytes], **changes: object) -> None:
    """Changes what the archive's record says."""
    record = json.loads(held["outcast.json"]) | changes
    held["outcast.json"] = json.dumps(record).encode()


@pytest.mark.parametrize(
    ("write", "change", "says"),
    [
        (rewritten, lambda held: held.pop("run/config.yaml"), "run/config.yaml: missing"),
        (rewritten, lambda held: held.pop("run/manifest.json"), "no manifest.json"),
        (rewritten, lambda held: held.update({"run/config.yaml": b"x"}), "changed after the run"),
        (rewritten, lambda held: held.update({"run/manifest.json": b"{}"}), "format: allowed is a"),
        (rewritten, lambda held: held.update({"README.txt/a": b"x"}), "or one that is a file too"),
        (written, lambda held: held.pop("outcast.json"), "no outcast.json"),
        (written, lambda held: say(held, format=4), "format 4, this reads 1 to 3"),
        (written, lambda held: say(held, files={"../evil": "0" * 64}), "the name of a file"),
        (written, lambda held: say(held, files={}), ": has not the hash that outcast.json says"),
        (written, lambda held: say(held, more=1), "more"),
        (written, lambda held: held.update({"run/x.pcap": b""}), "x.pcap: has not the hash"),
        (written, lambda held: held.update({"README.txt": b"x"}), "README.txt: has not the hash"),
    ],
)
def test_archives_that_are_not_as_they_say(write, change, says, packed, tmp_path):
    unpacked(rewritten(tmp_path / "by-hand.zip", packed), tmp_path / "whole")
    change(packed)
    assert says in refused(write(tmp_path / "hostile.zip", packed), tmp_path / "folder")


@pytest.mark.parametrize("fault", ["twice", "lzma", "password"])
def test_only_plain_members_are_unpacked(fault, tmp_path):
    file = tmp_path / "a.zip"
    method = zipfile.ZIP_LZMA if fault == "lzma" else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(file, "w", method) as target, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("a", "a" if fault == "twice" else "b"):
            target.writestr(name, b"x" * 1000)
    if fault == "password":
        data = bytearray(file.read_bytes())
        for at in (data.index(b"PK\x03\x04") + 6, data.index(b"PK\x01\x02") + 8):
            data[at] |= 1
        file.write_bytes(data)
    assert "allowed are regular files, stored or deflated" in refused(file, tmp_path / "folder")


@pytest.fixture(scope="module")
def small(golden, tmp_path_factory) -> bytes:
    """An archive without captures."""
    file = tmp_path_factory.mktemp("small") / "run.zip"
    return outcast.pack(golden, file, captures="hashes").path.read_bytes()


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_damaged_archives_are_refused_or_whole(data, small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    file = folder / "run.zip"
    content = bytearray(small)
    file.write_bytes(content)
    whole = contents(file)
    # The list of files stands at the end, and decides most.
    first = data.draw(st.sampled_from([0, max(0, len(content) - 6000)]))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(first, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(first, len(content))) :]
    file.write_bytes(content)
    inner = folder / "in"
    inner.mkdir()
    try:
        archive.unpack(file, inner)
    except InputError as error:
        text = str(error)
        assert text.startswith(f"{file}: ")
        assert "\n" not in text
    else:
        assert files_below(inner) == whole
    assert sorted(path.name for path in folder.iterdir()) == ["in", "run.zip"]
    shutil.rmtree(folder)
