"""Files of others cannot hang, flood or mislead their reader."""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from outcast import analysis, cli, experiment, handed_in
from outcast.analysis.capture.pcap import read_capture
from outcast.errors import ConfigError, InputError
from outcast.experiment import workloads
from outcast.records.counters import HostCounters
from outcast.records.run_directory import RunDirectory
from outcast.sweep.points import combinations
from outcast.uses.classroom import marking
from tests.golden import class_folder, model
from tests.golden.run_directory import make_run
from tests.json_files import edit

BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
)
MERGED = "a0: &a0 {k: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 30)
)


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return make_run(tmp_path / "run", 20_000_000, 1, 40)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, r":6: more than 50000 values, aliases written out"),
        (MERGED, r"more than 50000 values"),
        ("a: &a [*a]", r":1: .*an alias stands inside of what it means"),
        ("[" * 500_000, r":1: .*nested more than 50 levels deep"),
        ("\n\na: .inf", r":3: \.inf: allowed are finite numbers"),
        ("a: 1.0e+999", "allowed are finite numbers"),
        ("\nrivals: 010", r":2: 010: allowed are decimal numbers"),
        ("a: [0x10]", "0x10: allowed are decimal numbers"),
        ("a: 0b11", "0b11: allowed are decimal numbers"),
        ("a: 1_000", "1_000: allowed are decimal numbers"),
        ("a: 1_0.5", "1_0.5: allowed are decimal numbers"),
        ("a: 1:30", "1:30: allowed are decimal numbers"),
        ("1:30.5: a", "1:30.5: allowed are decimal numbers"),
        ("a: !!int '010'", "010: allowed are decimal numbers"),
        ("a: " + "1" * 5000, "too many digits"),
        ("a: 1" + ":59" * 100_000, "too many digits"),
        ("a: 0x" + "f" * 30, "allowed are 64 bits"),
        ('a: "\\e[2J"', "holds a control character"),
        ('"\\e[2J": 1', "holds a control character"),
        ('a: "\\ud800"', "holds a control character"),
        ("a: !!bool x", "not of the type bool"),
        ("a: !!timestamp x", "not of the type timestamp"),
        ("a: 2020-99-99", "month must be in"),
        ("a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
    ],
    ids=range(24),
)
def test_yaml_that_is_refused(text, said, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(ConfigError, match=said) as caught:
        experiment.load(path)
    assert time.process_time() - began < 5
    assert str(caught.value).isprintable()
    with pytest.raises(InputError, match=said):
        handed_in.read_yaml(path)


def test_aliases_within_bounds_are_taken():
    tree = yaml.load("a: &a [1, 2]\nb: [*a, *a]\nc: {<<: &d {x: 1}, y: *d}", handed_in.YamlLoader)
    assert tree == {"a": [1, 2], "b": [[1, 2], [1, 2]], "c": {"x": 1, "y": {"x": 1}}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("NaN", "NaN is not a number of JSON"),
        ("[-Infinity]", "-Infinity is not a number"),
        ("1e999", "a number is too large"),
        ("1" * 5000, "too large; allowed are 64 bits"),
        (str(2**63), "too large; allowed are 64 bits"),
        ("[" * 100_000, "nested more than 50 levels deep"),
        ("[" * 60 + "]" * 60, "nested more than 50 levels deep"),
        ('{"\\u001b": 1}', "holds a control character"),
        ('["\\ud800"]', "holds a control character"),
        ("{", "not JSON"),
        ("", "not JSON"),
    ],
)
def test_json_that_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        handed_in.parse_json(text)


def test_json_that_is_taken():
    text = '{"a": [1, -2.5, null, true, "ü\\n\\t"], "b": 9223372036854775807}'
    assert handed_in.parse_json(text) == json.loads(text)


def make_special(path: Path, kind: str) -> None:
    match kind:
        case "a FIFO":
            os.mkfifo(path)
        case "a device":
            path.symlink_to("/dev/zero")
        case "a folder":
            path.mkdir()


@pytest.mark.parametrize("kind", ["a FIFO", "a device", "a folder"])
def test_only_regular_files_are_read(kind, tmp_path):
    path = tmp_path / "x.yaml"
    make_special(path, kind)
    with pytest.raises(ConfigError, match=f"x.yaml: cannot be read: is {kind}; allowed is a reg"):
        experiment.load(path)
    with pytest.raises(InputError, match=f"is {kind}"):
        read_capture("p", path)
    with pytest.raises(ValueError, match=f"is {kind}"):
        workloads.read(path)


def test_a_link_that_the_user_names_is_followed(tmp_path):
    (tmp_path / "there").write_text("{a: 1}")
    (tmp_path / "here").symlink_to("there")
    assert handed_in.read_yaml(tmp_path / "here") == {"a": 1}


def test_a_file_is_no_larger_than_its_kind_is(tmp_path):
    path = tmp_path / "manifest.json"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(InputError, match="larger than 64 MiB"):
        handed_in.read_json(path)


def test_a_submission_that_would_fill_the_disk(tmp_path):
    made = class_folder.make_class(tmp_path / "class", "ana")
    handed_out = made.handed_out("ana")
    file = handed_out.path / "runs/x.pcap"
    file.touch()
    os.truncate(file, 1 << 43)
    with pytest.raises(InputError, match="larger than 16 GiB in all"):
        marking.opened(handed_out.path, tmp_path / "unpacked", made.exercise)


def test_a_file_that_goes_away_meanwhile_is_left_out(tmp_path, monkeypatch):
    (tmp_path / "goes").write_text("as a figure's temporary file does")
    (tmp_path / "stays").write_text("")
    scan = os.scandir

    @contextlib.contextmanager
    def emptied(folder: Path) -> Iterator[list[os.DirEntry[str]]]:
        with scan(folder) as entries:
            seen = list(entries)
        (tmp_path / "goes").unlink(missing_ok=True)
        yield seen

    monkeypatch.setattr(os, "scandir", emptied)
    assert handed_in.plain_files(tmp_path) == [tmp_path / "stays"]
    with pytest.raises(InputError, match="nowhere: cannot be read: No such file"):
        handed_in.require_plain(tmp_path / "nowhere")


def test_a_kernel_that_does_not_tell_its_rate(run):
    edit(run.manifest, lambda tree: tree["effective"].update(min_rto_ns=None))
    assert analysis.analyze(run).name == "golden"


def test_what_is_no_counter_may_be_negative():
    """Linux has no limit of connections, which nstat shows as -1."""
    shown = {"TcpMaxConn": -1, "TcpRetransSegs": 5}
    assert HostCounters(before=shown, after=shown).delta("TcpRetransSegs") == 0


def test_a_file_with_holes_is_no_capture(tmp_path):
    path = tmp_path / "x.pcap"
    path.write_bytes(model.PCAP_HEADER)
    os.truncate(path, 1 << 42)
    with pytest.raises(InputError, match=r"each of 1,\d+,\d+ packets was captured too short"):
        read_capture("p", path)


def test_a_sweep_has_so_many_points():
    lists = {f"x{n}": [*range(100)] for n in range(9)}
    with pytest.raises(ConfigError, match="1000000000000000000 points; allowed are 100000"):
        combinations(experiment.Sweep.model_validate(lists))


@pytest.mark.parametrize(
    "name", ["a\x1b[31mb", "a\nb", "[red]x", "[bold", "\u202eb", "b\udcffc", "a\rb"]
)
def test_names_cannot_act_on_the_terminal(name, run, tmp_path, capsys):
    given = tmp_path / name
    shutil.copytree(run.path, given)

    edit(given / "manifest.json", lambda manifest: manifest.update(name="[/]golden"))
    assert cli.invoke(["analyze", str(given)]) == (2 if "\udcff" in name else 0)
    assert cli.invoke(["inspect", str(tmp_path / f"{name} none")]) == 2
    told = capsys.readouterr()
    shown = told.out + told.err
    assert all(character.isprintable() or character == "\n" for character in shown)
    if "\udcff" not in name:
        assert "[/]golden: " in told.out
        assert name.encode("unicode_escape").decode() in told.out
    assert len(told.err.splitlines()) == (2 if "\udcff" in name else 1)


def test_verbs_print_through_the_terminal_module():
    """Printing elsewhere would let escapes reach the terminal."""
    for path in Path(cli.__file__).parent.glob("*.py"):
        if path.name not in ("terminal.py", "console.py"):
            text = path.read_text()
            assert "click.echo" not in text, path
            assert "Console(" not in text, path


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63) + 1, 2**63 - 1))
def test_decimal_numbers_are_read_as_they_were_written(number):
    assert yaml.load(yaml.safe_dump([number]), handed_in.YamlLoader) == [number]


@given(st.from_regex(r"[-+]?[0-9_]*[.:]?[0-9_xob]+", fullmatch=True))
def test_a_number_that_is_read_is_the_one_that_people_read(text):
    try:
        value = yaml.load(text, handed_in.YamlLoader)
    except yaml.YAMLError:
        return
    read_by_people = int if isinstance(value, int) else float
    assert isinstance(value, str) or value == read_by_people(text.replace("_", "x"))
