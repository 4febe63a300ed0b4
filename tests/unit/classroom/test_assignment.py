"""The class folder, the student's folder, and what `check` says is missing."""

import os
import shutil
import stat
from pathlib import Path

import pytest
import yaml

from outcast import cli
from outcast.errors import ConfigError, InputError
from outcast.uses.classroom import check, solution
from outcast.uses.classroom.classes import Class, new_class
from outcast.uses.classroom.exercise import load_exercise
from outcast.uses.classroom.folder import Folder, Key
from tests.golden.class_folder import EXERCISE, KEY, make_class, submit
from tests.golden.handed_class import GoldenRunner


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Class:
    return make_class(tmp_path_factory.mktemp("class") / "NETS26", "ana", "ben")


@pytest.fixture(scope="module")
def complete(kept, tmp_path_factory) -> Folder:
    return submit(kept, "ana", tmp_path_factory.mktemp("done") / "ana")


@pytest.fixture
def handed(complete, tmp_path) -> Folder:
    """A copy of the complete folder, to be spoilt."""
    return Folder(shutil.copytree(complete.path, tmp_path / "ana"))


def fresh(kept: Class, tmp_path: Path) -> Folder:
    return Folder(shutil.copytree(kept.handed_out("ana").path, tmp_path / "fresh"))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_new_makes_a_class_folder(tmp_path, capsys):
    ids = tmp_path / "ids.txt"
    ids.write_text("ben\n\n# left the course\ncem  # repeats\n")
    target = tmp_path / "course" / "NETS26"
    words = ["assignment", "new", "NETS26", "--exercise", str(EXERCISE), "--student", "ana"]
    assert cli.invoke([*words, "--students", str(ids), "-o", str(target)]) == 0
    assert "for 3 students" in capsys.readouterr().out
    klass = Class(target)
    assert klass.students == ("ana", "ben", "cem")
    assert stat.S_IMODE((target / "key").stat().st_mode) == 0o600
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    assert len(klass.key.secret) == 32
    assert (target / "exercise/solution.yaml").is_file()
    names = {str(path.relative_to(klass.handed_out("ana").path)) for path in files_of(klass, "ana")}
    assert names == {
        *("answers.yaml", "assignment.yaml", "task.md", "config.md"),
        *("configs/unfair.yaml", "configs/remedy.yaml"),
    }


def files_of(klass: Class, student: str) -> list[Path]:
    return [path for path in klass.handed_out(student).path.rglob("*") if path.is_file()]


def test_a_students_folder_holds_no_secret(kept):
    seeds = (kept.seed("ana", "effect"), kept.issued("ben").seed)
    secrets = [KEY.secret.hex(), "sql", "SELECT", "answer:", "tolerance", "solution"]
    secrets += ["take turns", "16KB", "sfq", *map(str, seeds)]
    texts = {path.name: path.read_text() for path in files_of(kept, "ana")}
    # The reference of all keys names every queue.
    del texts["config.md"]
    assert len(texts) == 5
    assert [(n, s) for s in secrets for n, text in texts.items() if s in text] == []
    assert not any("{{" in text for text in texts.values())
    assert "What is the goodput of the 2-hop flow?" in texts["answers.yaml"]


def test_only_configurations_of_runs_are_handed_out(tmp_path):
    exercise = Path(shutil.copytree(EXERCISE, tmp_path / "mine"))
    for name in ("unfair.yaml~", "unfair.yaml.bak", "unfair-solved.yaml", "#unfair.yaml#"):
        (exercise / "configs" / name).write_text("limit: 16KB")
    made = new_class(tmp_path / "c", "NETS", load_exercise(exercise), ["ana"]).handed_out("ana")
    assert sorted(os.listdir(made.path / "configs")) == ["remedy.yaml", "unfair.yaml"]


def test_what_differs_between_students_follows_from_the_key(kept):
    issued = {student: kept.issued(student) for student in ("ana", "ben")}
    assert kept.handed_out("ana").identity() == issued["ana"]
    assert issued["ana"].seed != issued["ben"].seed
    assert KEY.is_genuine(issued["ana"])
    other = Key(bytes(32))
    assert not other.is_genuine(issued["ana"])
    assert other.seed("NETS26", "ana", "runs") != issued["ana"].seed
    for forged in (
        issued["ana"].model_copy(update={"student": "ben"}),
        issued["ana"].model_copy(update={"seed": issued["ben"].seed}),
        issued["ana"].model_copy(update={"parameters": {"rivals": 13}}),
        issued["ana"].model_copy(update={"feedback": "points"}),
        issued["ana"].model_copy(update={"ticket": "0" * 64}),
    ):
        assert not KEY.is_genuine(forged)
    drawn = {kept.issued(f"student{n}").parameters["rivals"] for n in range(30)}
    assert drawn == {10, 11, 12}


def test_a_class_can_share_its_parameters(tmp_path, capsys):
    students = [f"student{number}" for number in range(8)]
    place = tmp_path / "c"
    words = ["assignment", "new", "C", "--same-parameters", "-o", str(place)]
    words += [word for student in students for word in ("--student", student)]
    assert cli.invoke(words) == 0
    capsys.readouterr()
    klass = Class(place)
    assert len({klass.issued(student).parameters["rivals"] for student in students}) == 1
    assert len({klass.issued(student).seed for student in students}) == 8
    assert klass.handed_out("student3").identity() == klass.issued("student3")


def test_further_students(tmp_path, capsys):
    klass = make_class(tmp_path / "c", "ana")
    before = klass.handed_out("ana").assignment.read_bytes()
    assert cli.invoke(["assignment", "handout", str(klass.path), "--student", "dan"]) == 0
    assert Class(klass.path).students == ("ana", "dan")
    # A folder that was lost is made again, to the byte.
    shutil.rmtree(klass.handed_out("ana").path)
    Class(klass.path).hand_out(["ana"])
    assert klass.handed_out("ana").assignment.read_bytes() == before
    assert Class(klass.path).students == ("ana", "dan")
    for students, said in (
        (["dan"], "handed a folder already"),
        (["eva", "eva"], "allowed is each one once"),
        (["Ana"], "Ana: is there already"),
        (["a/b"], "'a/b': allowed is a text"),
        ([".."], "allowed is a text"),
    ):
        with pytest.raises(ConfigError, match=said):
            Class(klass.path).hand_out(students)
    assert cli.invoke(["assignment", "handout", str(klass.path)]) == 2
    assert "--student: is missing" in capsys.readouterr().err
    assert sorted(os.listdir(klass.path / "handout")) == ["ana", "dan"]


def test_a_class_is_made_whole_or_not_at_all(tmp_path):
    exercise = load_exercise(EXERCISE)
    for name, students in (("a b", ["ana"]), ("NETS", ["ana", "ANA"])):
        with pytest.raises(ConfigError):
            new_class(tmp_path / "c", name, exercise, students)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "c").mkdir()
    with pytest.raises(ConfigError, match="exists; allowed is a new folder"):
        new_class(tmp_path / "c", "NETS", exercise, ["ana"])
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file: File exists; allowed is a new folder"):
        new_class(tmp_path / "file" / "c", "NETS", exercise, [])


def test_check_names_everything_that_is_missing(kept, tmp_path, capsys):
    folder = fresh(kept, tmp_path)
    assert cli.invoke(["assignment", "check", str(folder.path)]) == 2
    said = capsys.readouterr()
    for line in (
        "answers.yaml: expectation: not answered",
        "configs/remedy.yaml: FILL_IN is still in line 6",
        "runs/unfair: the run is missing; make it with: outcast run configs/unfair.yaml -o runs/",
        "answers.yaml: why: not answered",
        "answers.yaml: first_loss: not answered",
    ):
        assert line in said.out
    assert "remedy_works" not in said.out
    assert len(said.err.splitlines()) == 1


def test_a_complete_folder(complete, capsys):
    assert cli.invoke(["assignment", "check", str(complete.path)]) == 0
    assert capsys.readouterr().out == f"{complete.path}: complete\n"


def test_check_says_nothing_of_right_and_wrong(handed):
    edit(handed.answers, "cause: ports", "cause: rtt")
    edit(handed.answers, "lost: ", "lost: 1")
    found = check.check(handed)
    assert (found.missing, found.doubtful) == ((), ())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("expectation: rivals", "expectation: nobody", "'nobody': allowed is one of lone, rivals"),
        ("cause: ports", "cause: [ports]", "cause: \"['ports']\": allowed is one of rtt, ports"),
        ("lost: 325.0", "lost: 325 packets", "lost: '325 packets' is not a number"),
        ("lost: 325.0", "lost: true", "lost: 'True' is not a number"),
        ("lost: 325.0", "lost: .nan", "allowed are finite numbers"),
        ("  from: 0.108998", "  from: 0.1085", "complete"),
        ("  from: 0.108998", "  from: -5", "is 5.109 wide; allowed is at most 0.001"),
        ("  from: 0.108998", "  from: 3", "ends at 0.108998, before it begins at 3"),
        ("  from: 0.108998\n", "", "first_loss: allowed is {from: NUMBER, to: NUMBER}"),
        ("why: Because the ports take turns in losing.", "why: because so", "fewer than 5 words"),
        ("sketch.png", "sketch.gif", "allowed is the name of a file (.png, .jpg, .pdf)"),
        ("sketch.png", "../ana/sketch.png", "allowed is the name of a file in the folder"),
        ("sketch.png", "other.png", "other.png: there is no such file"),
        ("sketch.png", "runs.png", "runs.png: is no PNG file"),
        ("sketch.png", "link.png", "link.png: allowed is a file, not a link"),
        ("lost: 325.0", "lots: 325", "lots: there is no such question"),
        ("lost: 325.0", "remedy_works: true", "remedy_works: there is no such question"),
    ],
)
def test_answers_that_are_none(old, new, said, handed):
    (handed.path / "runs.png").write_bytes(b"GIF89a")
    (handed.path / "link.png").symlink_to("/etc/hostname")
    edit(handed.answers, old, new)
    found = check.check(handed)
    lines = [*found.missing, *found.doubtful] or ["complete"]
    assert any(said.replace('"', "") in line.replace('"', "") for line in lines), lines


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("limit: 16KB", "limit: 17KB", "runs/unfair: configs/unfair.yaml has changed since"),
        ("rate: 1gbit", "rate: 100mbit", "links is not what the task sheet asks for"),
        ("engine: virtual", "engine: realtime", "engine is realtime, and the task sheet asks for"),
        ("seed: ", "seed: 1", "seed is 1"),
        ("topology:", "topologie:", "configs/unfair.yaml:2: topologie: unknown key"),
    ],
)
def test_configurations_that_were_changed(old, new, said, handed):
    path = handed.path / "configs/unfair.yaml"
    edit(path, old, new)
    assert any(said in line for line in check.check(handed).missing)


def test_what_a_remedy_may_change(handed):
    path = handed.path / "configs/remedy.yaml"
    tree = yaml.safe_load(path.read_text())
    tree["queue"] = {"kind": "fq_codel", "limit": "100 packets"}
    tree["transport"]["congestion_control"] = "cubic"
    path.write_text(yaml.safe_dump(tree))
    lines = check.check(handed).missing
    assert lines == ("runs/remedy: configs/remedy.yaml has changed since the run was made",)
    tree["duration"] = "100ms"
    path.write_text(yaml.safe_dump(tree))
    first, *_ = check.check(handed).missing
    assert "configs/remedy.yaml: duration is not what the task sheet" in first


def test_a_broken_run_alone_has_the_status_of_distrust(handed):
    handed.run("unfair").counters.write_text("{}")
    assert cli.invoke(["assignment", "check", str(handed.path)]) == 4


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("student: ana", "student: a/b", "student: "),
        ("ticket: ", "ticket: x", "ticket: "),
        ("seed: ", "seed: -", "seed: "),
        ("outcast-assignment-1", "outcast-assignment-9", "format: "),
        ("class: NETS26\n", "", "class: is missing"),
        ("kind: number", "kind: numbers", "questions.1: "),
        ("format:", "format: {", "not valid YAML"),
    ],
)
def test_an_edited_assignment_yaml(old, new, said, handed):
    edit(handed.assignment, old, new)
    with pytest.raises(InputError) as refused:
        check.check(handed)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_solution_needs_a_student_of_the_class(kept, tmp_path):
    with pytest.raises(ConfigError, match="zoe: not in the class; allowed are ana, ben"):
        solution.solve(kept, "zoe", tmp_path / "x", GoldenRunner())
    with pytest.raises(ConfigError, match="exists; allowed is a new folder"):
        solution.solve(kept, "ana", tmp_path, GoldenRunner())


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(InputError, match=r"no assignment\.yaml"):
        check.check(Folder(tmp_path))
    (tmp_path / "class.yaml").write_text("")
    with pytest.raises(InputError, match="such as one below its handout/"):
        check.check(Folder(tmp_path))


def test_pictures_drawn_again_are_no_forgery(handed):
    (handed.run("unfair").path / "mine.png").write_bytes(b"x")
    (handed.run("unfair").path / "notes.txt").write_text("what I saw")
    found = check.check(handed)
    assert (found.missing, found.doubtful) == ((), ())
