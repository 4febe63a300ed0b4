"""Grading many: bounds of each, resuming, the teacher's tables, gradebook."""

import csv
import io
import json
import os
import shutil
import sys
import time
import zipfile
from dataclasses import replace

import pytest

from outcast import cli
from outcast.errors import ConfigError, InputError
from outcast.records.tables import csv_text
from outcast.uses.classroom import grade as grading
from outcast.uses.classroom import gradebook, packed
from outcast.uses.classroom.classes import Class
from outcast.uses.classroom.evidence import Evidence
from outcast.uses.classroom.folder import Folder
from outcast.uses.classroom.grade import Bounds, grade
from outcast.uses.classroom.marking import Graded
from outcast.uses.classroom.question_kind import Marked
from tests.golden import handed_class as golden

ANA = Graded(
    student="ana",
    place="inbox/ana",
    verdict="genuine",
    marked=(
        Marked("ratio", 2.0, 2.0, "", "right"),
        Marked("cause", 0.0, 1.5, "", "wrong"),
        Marked("why", 0.0, 4.0, "the teacher reads it", "by_hand"),
    ),
    runs=(Evidence("unfair", "genuine"),),
    texts={"why": '=HYPERLINK("http://example.org"; "x")'},
)
BEN = Graded("ben", "inbox/ben", "rejected", ANA.marked, (Evidence("unfair", "forged"),), ("no",))
AGAIN = Graded("ana", "inbox/old", "incomplete", counts=False)


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory) -> tuple[Class, Folder]:
    folder = tmp_path_factory.mktemp("class")
    class_ = golden.small_class(folder, "ana")
    return class_, golden.hand_in(class_, "ana", folder / "inbox/ana")


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# Gradebooks.


MARKED = gradebook.with_by_hand([ANA], {("ana", "why"): gradebook.Points(3.0, "")})[0]


def test_moodle():
    text = gradebook.moodle("NETS26", [MARKED, BEN, AGAIN])
    assert rows(text) == [
        {"ID number": "ana", "NETS26": "5", "NETS26 feedback": "ratio 2/2; cause 0/1.5; why 3/4"}
    ]
    rich = Graded("ana", "", "genuine", (Marked("a", 0.0, 101.0, "", "wrong"),))
    with pytest.raises(ConfigError, match="101 points in all; allowed are 100"):
        gradebook.moodle("NETS26", [rich])


def test_canvas():
    """Its importer asks for these columns. A row with `Points Possible` is no student's."""
    lines = gradebook.canvas("NETS26", [MARKED, BEN]).splitlines()
    assert lines == [
        "Student,ID,SIS User ID,SIS Login ID,Section,NETS26",
        "    Points Possible,,,,,7.5",
        "ana,,ana,ana,,5",
    ]


@pytest.mark.parametrize("book", [gradebook.moodle, gradebook.canvas])
def test_a_total_waits_for_the_answers_that_a_person_marks(book):
    assert "ana" not in book("NETS26", [ANA, BEN, AGAIN])
    assert gradebook.waiting([ANA, BEN, AGAIN]) == ["ana"]
    assert gradebook.waiting([MARKED, BEN]) == []


# Tables and gradebook.


def test_no_cell_is_a_formula():
    (row,) = rows(csv_text([("a", "b", "c"), ("=1+1", "-3", "@x")]))
    assert row == {"a": "'=1+1", "b": "-3", "c": "'@x"}
    (row,) = rows(csv_text([("a", "b"), ("x;=1+1\n-2;y", "\uff1d1")]))
    assert row == {"a": "x;'=1+1\n'-2;y", "b": "'\uff1d1"}


def test_the_csv_has_every_question_and_run():
    first, second = rows(gradebook.as_csv([ANA, BEN], ["unfair"], ["ratio", "why"]))
    assert (first["points"], first["most_points"], first["by_hand_points"]) == ("2", "7.5", "4")
    assert (first["unfair"], first["ratio"], first["why.state"]) == ("genuine", "2", "by_hand")
    assert (second["verdict"], second["points"], second["notes"]) == ("rejected", "", "no")
    columns = {column.header: [*column.cells] for column in gradebook.table([ANA, BEN], []).columns}
    assert columns["points"] == ["2", "-"]


def test_a_feedback_sheet():
    text = gradebook.feedback("Who | starves", ANA)
    assert "ana: **2 of 7.5 points**, and 4 more to be marked by your teacher." in text
    assert "| cause | 0/1.5 | wrong |" in text
    assert "HYPERLINK" not in text
    for points, state in ((0.0, "wrong"), (3.0, "partly"), (4.0, "right")):
        (given,) = gradebook.with_by_hand([ANA], {("ana", "why"): gradebook.Points(points, "")})
        assert f"| why | {points:g}/4 | {state} |" in gradebook.feedback("x", given)
        assert ("why" in "\n".join(gradebook.remarks([given]))) == (state != "right")
    reasons = (r"a \| b ![x](http://example.org) <img>",)
    text = gradebook.feedback("x", replace(ANA, runs=(Evidence("unfair", "forged", reasons),)))
    assert r"forged: a \\\| b !\[x](http://example.org) &lt;img> |" in text


def test_points_by_hand(tmp_path):
    path = tmp_path / gradebook.BY_HAND
    assert gradebook.write_by_hand(path, [ANA], gradebook.read_by_hand(path)) == 1
    (row,) = rows(path.read_text())
    assert (row["student"], row["question"], row["points"]) == ("ana", "why", "")
    assert row["answer"].startswith("'=HYPERLINK")
    # A spreadsheet of another country writes it so.
    path.write_text("\ufeffstudent;question;points;most_points;comment\nana;why;2,5;4;good\n")
    given = gradebook.read_by_hand(path)
    (marked,) = gradebook.with_by_hand([ANA], given)
    assert (marked.points, marked.by_hand_points) == (4.5, 0)
    assert gradebook.write_by_hand(path, [ANA], given) == 0
    assert gradebook.read_by_hand(path) == given


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("student,question\n", "has no column points"),
        ("student,question,points,most_points\nana,why,5,4\n", ":2: points: '5': allowed is a"),
        ("student,question,points,most_points\nana,why,good,4\n", "'good': allowed is a number"),
        ("student,question,points\rana,why,good\r", ":2: points: 'good'"),
        (f"student,question,points\nana,why,{'1' * 200_000}\n", r"x\.csv: not CSV"),
    ],
)
def test_points_that_cannot_be_given(text, said, tmp_path):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ConfigError, match=said):
        gradebook.read_by_hand(tmp_path / "x.csv")


# Packed submissions.


def test_what_is_packed(handed_in, tmp_path):
    made = packed.write(handed_in[1], tmp_path / "ana.zip")
    assert (made.bytes, made.runs) == ((tmp_path / "ana.zip").stat().st_size, ("unfair", "remedy"))
    with zipfile.ZipFile(made.path) as archive:
        names = set(archive.namelist())
    of_a_run = ("config.yaml", "manifest.json", "summary.json")
    assert names == {
        *("assignment.yaml", "answers.yaml", "picture.png"),
        *(f"configs/{run}.yaml" for run in made.runs),
        *(f"runs/{run}/{name}" for run in made.runs for name in of_a_run),
    }


def test_what_cannot_be_packed(handed_in, tmp_path):
    folder = Folder(tmp_path / "ana")
    shutil.copytree(handed_in[1].path, folder.path)
    (folder.path / "answers.yaml").write_bytes(b"# " + os.urandom(2_100_000).hex().encode())
    with pytest.raises(InputError, match=r"allowed are 2048576; its largest file is answers\.yaml"):
        packed.write(folder, tmp_path / "ana.zip")
    (folder.run("unfair").path / "counters.json").unlink()
    with pytest.raises(InputError, match=r"counters\.json: missing"):
        packed.write(folder, tmp_path / "ana.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["ana"]


# Bounds.


BOUNDED = """\
import json, os, pathlib, signal, sys, time
item = json.load(sys.stdin)
time.sleep(item.get("sleep_s", 0))
taken = bytearray(item.get("megabytes", 0) << 20)
if item.get("kill"):
    os.kill(os.getpid(), signal.SIGSEGV)
pathlib.Path(sys.argv[1], "result.json").write_text('{"done": true}')
"""


def test_what_takes_too_long_or_too_much_does_not_stop_the_others(tmp_path, monkeypatch):
    (tmp_path / "item.py").write_text(BOUNDED)
    monkeypatch.setattr(grading, "python_module", lambda _: [sys.executable, f"{tmp_path}/item.py"])
    items = [{"sleep_s": 0.0}, {"sleep_s": 600.0}, {"megabytes": 4000}, {"kill": True}]
    began, scratch = time.monotonic(), tmp_path / "scratch"
    scratch.mkdir()
    found = grading.each(items, scratch, 4, Bounds(8.0, 1 << 30))
    ended = {done.item: done for done in found}
    assert time.monotonic() - began < 40
    assert ended[0].result == {"done": True}
    assert "took longer than 8 s" in ended[1].problem
    assert "took more than 1024 MiB of memory" in ended[2].problem
    assert "its grading ended by signal 11" in ended[3].problem
    assert list(scratch.iterdir()) == []


def test_an_interrupted_grading_ends_its_processes(tmp_path, monkeypatch):
    (tmp_path / "item.py").write_text(BOUNDED)
    monkeypatch.setattr(grading, "python_module", lambda _: [sys.executable, f"{tmp_path}/item.py"])
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    items = [{}, *[{"sleep_s": 600.0}] * 5]
    began = time.monotonic()
    found = grading.each(items, scratch, 2, Bounds(600.0, 1 << 30))
    assert next(found).result
    found.close()
    assert time.monotonic() - began < 30
    assert list(scratch.iterdir()) == []


def test_many_are_graded_in_one_go_and_taken_up_again(handed_in, tmp_path):
    class_, folder = handed_in
    places = [folder.path, tmp_path / "nobody"]
    told: list[str] = []
    graded = grade(
        class_, places, runner=golden.RUNNER, jobs=2, results=tmp_path, on_progress=told.append
    )
    assert [each.verdict for each in graded] == ["genuine", "rejected"]
    assert "o such file" in graded[1].notes[0]
    assert len(told) == 2
    assert any(": genuine by itself, " in line for line in told)
    (kept,) = (tmp_path / ".grading").glob("*.json")
    tree = json.loads(kept.read_text())
    kept.write_text(json.dumps({**tree, "notes": ["taken from the earlier grading"]}))
    (again,) = grade(class_, places[:1], runner=golden.RUNNER, results=tmp_path, resume=True)
    assert again.notes == ("taken from the earlier grading",)


def test_a_grade_that_could_not_be_computed_is_not_kept(handed_in, tmp_path, monkeypatch):
    class_, folder = handed_in
    (tmp_path / "kept").mkdir()
    task = grading.Task(
        str(class_.path), str(folder.path), grading.GUEST, str(tmp_path / "kept"), "basis"
    )
    for number, remarks in enumerate((("remedy_works: not computed",), ())):
        graded = Graded("ana", "", "genuine", for_teacher=remarks)
        monkeypatch.setattr(grading.marking, "mark", lambda *_, graded=graded: graded)
        grading.grade_one(task, tmp_path / f"scratch-{number}")
        assert len(list((tmp_path / "kept").iterdir())) == number


# The verbs.


def test_the_verb(handed_in, tmp_path, capsys, monkeypatch):
    class_, folder = handed_in
    monkeypatch.setattr(grading, "GUEST", golden.RUNNER)
    file = tmp_path / "ana.zip"
    assert cli.invoke(["assignment", "pack", str(folder.path), "-o", str(file)]) == 0
    assert "runs: unfair, remedy" in capsys.readouterr().out
    argv = ["assignment", "grade", str(class_.path), str(folder.path)]
    assert cli.invoke([*argv, "-o", str(tmp_path / "graded")]) == 0
    said = capsys.readouterr()
    assert "genuine" in said.out
    assert "2 answers wait for points in" in said.err
    # What `check` calls incomplete is handed in only by an own word.
    (folder.path / "answers.yaml").write_text("")
    argv = ["assignment", "pack", str(folder.path), "-o", str(file)]
    assert cli.invoke(argv) == 2
    assert "items incomplete" in capsys.readouterr().err
    assert cli.invoke([*argv, "--incomplete"]) == 0


def test_without_the_key_nothing_is_graded_and_nothing_told(handed_in, tmp_path, capsys):
    class_, folder = handed_in
    for place in (folder.path, tmp_path):
        argv = ["assignment", "grade", "--format", "json", str(place)]
        assert cli.invoke([*argv, str(folder.path)]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert len(said.err.splitlines()) == 1
    shutil.copytree(class_.path, tmp_path / "class")
    (tmp_path / "class/key").unlink()
    assert cli.invoke(["assignment", "grade", str(tmp_path / "class"), str(folder.path)]) == 2
    assert "only the teacher's class folder has the key" in capsys.readouterr().err
