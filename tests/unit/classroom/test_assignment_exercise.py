"""Exercises as folders: those of outcast are valid, and what is wrong is refused in a line."""

import shutil
from pathlib import Path

import pytest

from outcast.errors import ConfigError, InputError
from outcast.uses.classroom.evidence import Evidence, RunState
from outcast.uses.classroom.exercise import load_exercise, shipped
from outcast.uses.classroom.marking import Graded, Verdict, chosen
from outcast.uses.classroom.solution import lint
from tests.golden.class_folder import EXERCISE
from tests.golden.handed_class import GoldenRunner


@pytest.mark.parametrize("name", shipped())
def test_what_comes_with_outcast_is_valid(name):
    exercise = load_exercise(name)
    assert exercise.name == name
    assert sum(question.points for question in exercise.questions) > 0


SMALL = """\
format: outcast-exercise-1
title: Small
minutes: 10
parameters: {size: {choose: [16, 17]}}
runs:
  first: {config: configs/first.yaml, free: [queue]}
questions:
  - {key: total, kind: number, run: first, asked: "How much?", points: 1, tolerance: 2%,
     answer: {measure: total_goodput_bps, times: 1.0e-6}}
"""
CONFIG = """\
name: first
topology: {kind: linear, rivals: 2}
links: {rate: 100mbit}
queue: {kind: tbf, limit: FILL_IN}
flows: [{from: 2-hop}]
duration: 100ms
analysis: {windows: [50ms], bin: 10ms}
engine: virtual
seed: {{seed}}
"""


@pytest.fixture
def small(tmp_path) -> Path:
    """A small exercise of one run and one question."""
    folder = tmp_path / "small"
    (folder / "configs").mkdir(parents=True)
    (folder / "exercise.yaml").write_text(SMALL)
    (folder / "configs/first.yaml").write_text(CONFIG)
    (folder / "task.md").write_text("For {{student}}: {{size}} KB.\n")
    (folder / "solution.yaml").write_text('runs: {first: {queue.limit: "{{size}}KB"}}\n')
    return folder


ANSWER = "{measure: total_goodput_bps, times: 1.0e-6}"
MISTAKES = {
    "exercise.yaml": [
        ("title: Small", "titel: Small", "runs, questions; did you mean 'title'?"),
        ("kind: number", "kind: numbr", 'exercise.yaml:8: questions.0.kind: "numbr" is unknown;'),
        ("points: 1,", "", "exercise.yaml:8: questions.0.points: is missing"),
        ("points: 1,", "points: -1,", "questions.0.points: -1: allowed is from 0 to 1000"),
        ("points: 1,", "pionts: 1,", "questions.0.pionts: unknown key; allowed are kind, key"),
        ("tolerance: 2%", "tolerance: 2 percent", "'2 percent': allowed is a percentage, as 2%"),
        ("run: first, a", "run: frist, a", "0.run: frist: no such run; allowed are first; did you"),
        ("run: first, asked", "asked", "total: run is missing, because the answer is computed"),
        ("total_goodput_bps", "goodput", "0.answer.measure: 'goodput': allowed are chain_share"),
        (
            ANSWER,
            "{sql: \"SELECT * FROM read_csv('/etc/passwd')\"}",
            "sql: read_csv is refused, because a query reads only",
        ),
        (ANSWER, "{}", "total: allowed is {sql: ...} or {measure: ...}"),
        (ANSWER, "much", "total: answer: allowed is a number, {sql: ...} or {measure: ...}"),
        ("[queue]", "[programs]", "exercise.yaml:6: runs.first.free: programs: allowed are"),
        ("configs/first.yaml", "../first.yaml", "runs.first.config: "),
        ("configs/first.yaml", "configs/none.yaml", "configs/none.yaml: there is no such file"),
        ("choose: [16, 17]", "choose: []", "exercise.yaml:4: parameters.size: allowed is {choose"),
        ("{size: {", "{seed: {", "parameters.seed: is the name of something else"),
        ("much?", "{{sice}}?", "{{sice}}: allowed are class, student, seed, size; did you mean"),
        ("title: Small", "title: Small\ntitle: Big", "the key 'title' stands twice"),
        ("title: Small", "title: no", "exercise.yaml:2: title: false: allowed is a text, in"),
    ],
    "task.md": [("{{size}}", "{{sizes}}", "task.md:1: {{sizes}}: allowed are")],
    "solution.yaml": [
        ("first:", "second:", "solution.yaml:1: runs.second: is unknown; allowed are first"),
        ("queue.limit", "queue.burst", "first.yaml:4: queue.limit: 'FILL_IN' is not a queue limit"),
    ],
    "configs/first.yaml": [
        ("seed: {{seed}}", "seed: 1", "first.yaml: a line `seed: {{seed}}` is needed"),
        ("linear, rivals: 2", "file, path: own.py, topo: own", "first.yaml: topology: names a"),
        (
            "engine: virtual",
            "engine: virtual\nworkloads: [{kind: background, load: 0.1, sizes: own.csv}]",
            "first.yaml: workloads: names a file; allowed are configurations without files",
        ),
        ("engine: virtual", "engine: realtime", "engine is realtime; allowed is virtual"),
        ("100mbit", "100mbits", "first.yaml:3: links.rate: "),
    ],
}


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [(file, *row) for file, rows in MISTAKES.items() for row in rows],
)
def test_what_is_wrong_is_refused_in_one_line(file, old, new, said, small):
    (small / "configs/own.csv").write_text("1000,1\n")
    load_exercise(small)
    path = small / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ConfigError) as refused:
        load_exercise(small)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_exercise_that_is_not_there():
    with pytest.raises(ConfigError, match=r"outcasts: no such exercise; .*did you mean 'outcast'"):
        load_exercise("outcasts")


# --- Which of a student's submissions counts; and an exercise whose solution is not right


def handed(
    student: str | None,
    place: str = "",
    *,
    verdict: Verdict = "genuine",
    state: RunState = "genuine",
    **texts: str,
) -> Graded:
    run = Evidence("unfair", state)
    return Graded(student, place or str(student), verdict, runs=(run,), texts=texts)


def compared(*graded: Graded) -> list[Graded]:
    """In the order in which they came."""
    return chosen(graded, range(len(graded)))


def test_of_a_students_submissions_the_best_counts_and_of_equal_ones_the_first():
    bad, first, second = compared(
        handed("ana", "bad", verdict="rejected"), handed("ana", "first"), handed("ana", "second")
    )
    assert [bad.counts, first.counts, second.counts] == [False, True, False]
    assert bad.for_teacher == ("does not count: first, also handed in for ana, is genuine",)
    assert second.for_teacher == ("does not count: first, also handed in for ana, came first",)


def test_the_first_is_so_by_its_date():
    """Not by its place, which the student names."""
    later, first = chosen([handed("ana", "a"), handed("ana", "b")], [2, 1])
    assert [later.counts, first.counts] == [False, True]


def test_without_a_name_nothing_is_a_second_submission():
    assert all(each.counts for each in compared(handed(None, "a"), handed(None, "b")))


def test_a_sound_exercise_and_one_that_is_not(tmp_path):
    sound = lint(load_exercise(EXERCISE), GoldenRunner(), tmp_path / "a")
    assert sound == []
    wrong = Path(shutil.copytree(EXERCISE, tmp_path / "wrong"))
    text = (wrong / "exercise.yaml").read_text()
    text = text.replace("hops = 2", "hops = 4").replace("widest: 0.001", "widest: 0.0000001")
    text = text.replace("SELECT sum(dropped)", "SELECT sum(dropped) / 7.0")
    (wrong / "exercise.yaml").write_text(text)
    solution = (wrong / "solution.yaml").read_text()
    solution = solution.replace("Because the ports take turns in losing", "In turns")
    solution = solution.replace(
        "{kind: sfq, limit: 20 packets, buckets: 1024}", "{kind: tbf, limit: 17KB}"
    )
    (wrong / "solution.yaml").write_text(solution)
    told = "\n".join(lint(load_exercise(wrong), GoldenRunner(), tmp_path / "b"))
    assert "lone_goodput: " in told
    assert "lost: the solution's answer, to three digits, is not right" in told
    assert "why: answers.yaml: why: fewer than 5 words" in told
    assert "remedy_works: over 3 seeds the difference lies between 0 Mbps and 0" in told
    (wrong / "exercise.yaml").write_text(text.replace("sum(dropped)", "sum(dorpped)"))
    with pytest.raises(InputError, match='lost: sql: unable to find column "dorpped"'):
        lint(load_exercise(wrong), GoldenRunner(), tmp_path / "c")
