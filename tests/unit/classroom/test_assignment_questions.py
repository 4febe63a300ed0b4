"""The kinds of questions: how answers are marked; and queries, which read nothing but the run."""

import math
import time
from typing import Any

import polars as pl
import pytest
from pydantic import TypeAdapter

from outcast.errors import ConfigError, DeadlineError, InputError
from outcast.records.run import Run
from outcast.uses.classroom import queries
from outcast.uses.classroom.answers import read_answers
from outcast.uses.classroom.exercise import load_exercise
from outcast.uses.classroom.questions import KINDS, Effect, Number, Question, Text
from tests.golden.class_folder import EXERCISE
from tests.golden.handed_class import GoldenRunner

SHARED = {"key": "q", "asked": "What?", "points": 2.0, "run": "r"}
CHOICES = {"lone": "x", "rivals": "y"}
EFFECT = {"kind": "effect", "against": "a", "measure": "outcast_ratio"}


def question(**keys: Any) -> Question:
    made: Question = TypeAdapter(Question).validate_python({**SHARED, **keys})
    return made


@pytest.mark.parametrize(
    ("keys", "answer", "right", "state"),
    [
        ({"kind": "number", "tolerance": "2%"}, 10.2, (10.0,), "right"),
        ({"kind": "number", "tolerance": "2%"}, 10.21, (10.0,), "wrong"),
        ({"kind": "number", "tolerance": "2%"}, -10.2, (-10.0,), "right"),
        ({"kind": "number", "tolerance": 0.5}, 10.5, (10.0,), "right"),
        ({"kind": "number", "tolerance": ["2%", 0.5]}, 100.6, (100.0,), "right"),
        ({"kind": "number"}, 7.0, (5.0, 7.0), "right"),
        ({"kind": "number"}, 6.0, (5.0, 7.0), "wrong"),
        ({"kind": "number"}, None, (5.0,), "missing"),
        ({"kind": "number"}, 5.0, None, "missing"),
        ({"kind": "number"}, 5.0, (), "by_hand"),
        ({"kind": "number"}, None, (), "missing"),
        ({"kind": "packets", "widest": 1}, (1.0, 2.0), (), "by_hand"),
        ({"kind": "packets", "widest": 1}, (1.0, 2.0), None, "missing"),
        ({"kind": "choice", "choices": CHOICES}, "lone", ("lone",), "right"),
        ({"kind": "choice", "choices": CHOICES}, "rivals", ("lone",), "wrong"),
        ({"kind": "packets", "widest": 1}, (1.0, 2.0), ((1.2, 1.3),), "right"),
        ({"kind": "packets", "widest": 1}, (1.25, 2.0), ((1.2, 1.3),), "wrong"),
        ({"kind": "packets", "widest": 1}, (1.0, 1.25), ((1.2, 1.3),), "wrong"),
        ({"kind": "packets", "widest": 1}, (5.0, 5.5), ((1.2, 1.3), (5.1, 5.1)), "right"),
        ({"kind": "text"}, "words", None, "by_hand"),
        ({"kind": "text"}, None, None, "missing"),
        ({"kind": "picture"}, "a.png", None, "by_hand"),
        ({"kind": "prediction", "choices": CHOICES}, "lone", None, "right"),
        ({**EFFECT, "below": 0.5}, None, ((0.2, 0.49),), "right"),
        ({**EFFECT, "below": 0.5}, None, ((0.2, 0.51),), "wrong"),
        ({**EFFECT, "above": 2}, None, ((2.1, 9.0),), "right"),
        ({**EFFECT, "above": 2}, None, ((1.9, 9.0),), "wrong"),
        ({**EFFECT, "above": 2}, None, None, "missing"),
    ],
)  # fmt: skip
def test_marks(keys, answer, right, state):
    marked = question(**keys).mark(answer, right)
    assert (marked.key, marked.most_points, marked.state) == ("q", 2.0, state)
    assert marked.points == (2.0 if state == "right" else 0.0)


def test_an_effect_needs_an_interval_beyond_the_size_asked_for():
    effect = question(**EFFECT, below=0.6)
    assert isinstance(effect, Effect)
    before = [6.0, 5.0, 7.0, 4.5, 5.5]

    def state(after: list[float]) -> str:
        return effect.mark(None, effect.right_of(effect.interval(after, before))).state

    assert state([1.3, 1.2, 1.6, 1.1, 1.4]) == "right"
    # 17 KB in the place of 16 KB: some runs are better by chance, and some are worse.
    assert state([3.1, 6.2, 2.9, 7.5, 4.0]) == "wrong"
    assert state(before) == "wrong"
    # A remedy that stops the traffic has no ratio.
    assert state([1.3, math.nan, 1.6, 1.1, 1.4]) == "wrong"
    assert state([1.3, 0.0, 1.6, 1.1, 1.4]) == "wrong"
    difference = question(**{**EFFECT, "measure": "total_goodput_bps"}, above=0)
    assert isinstance(difference, Effect)
    low, high = difference.right_of(difference.interval([5.0, 6.0, 7.0], [4.0, 5.0, 6.0]))[0]
    assert (low, high) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"kind": "effect", "against": "r", "measure": "jain_index", "above": 1}, "another run"),
        ({**EFFECT}, "below, above: allowed is one of them"),
        ({**EFFECT, "below": 1, "above": 1}, "below, above: allowed is one of them"),
        ({**EFFECT, "below": -1}, "a quotient is above 0"),
        ({**EFFECT, "below": 1, "answer": 3}, "an effect has none"),
        ({"kind": "packets", "widest": 1, "answer": 3}, "answer: allowed is {sql: ...}"),
        ({"kind": "choice", "choices": CHOICES, "answer": "nobody"}, "one of lone, rivals"),
        ({"kind": "prediction", "choices": CHOICES, "answer": "lone"}, "has none"),
    ],
)
def test_keys_that_contradict_each_other(keys, said):
    with pytest.raises(ValueError, match=said):
        question(**keys).require_sound()


@pytest.mark.parametrize("kind", KINDS)
def test_a_student_gets_no_key_that_is_not_public(kind):
    """A key that a later kind adds stays with the teacher, until its class says otherwise."""
    example = next(q for q in load_exercise(EXERCISE).questions if isinstance(q, kind))
    handed = example.handed_out()
    shared = {"kind", "key", "asked", "points", "hint", "run"}
    assert set(handed) <= shared | set(kind.PUBLIC)
    assert not set(handed) & {"answer", "tolerance"}
    # The student's own copy reads it again.
    assert question(**handed).key == example.key


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    exercise = load_exercise(EXERCISE)
    config = exercise.expected("unfair", 5)
    return Run(GoldenRunner().run(config, tmp_path_factory.mktemp("run") / "run"))


SECRET = "/etc/passwd"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT * FROM read_csv('{SECRET}')",
        f"select * from READ_Parquet ('{SECRET}')",
        f"SELECT * FROM \"read_csv\"('{SECRET}')",
        f"SELECT * FROM `read_json`('{SECRET}')",
        f"SELECT * FROM read_ipc/* */('{SECRET}')",
        f"SELECT flow FROM flows WHERE src IN (SELECT * FROM read_csv('{SECRET}'))",
        f"WITH a AS (SELECT * FROM read_csv('{SECRET}')) SELECT flow FROM flows",
        f"SELECT 'it''s' FROM read_csv('{SECRET}')",
        f"SELECT '-- ' FROM read_csv('{SECRET}')",
        f"SELECT '/*' FROM read_csv('{SECRET}') -- */",
        f"SELECT E'\\'' FROM read_csv('{SECRET}') --'",
        f"SELECT $$'$$ FROM read_csv('{SECRET}') --'",
        f"SELECT /* /* */ ' */ 1 FROM read_csv('{SECRET}') --'",
        f"SELECT * FROM scan_csv('{SECRET}')",
        "with Recursive a AS (SELECT 1 UNION ALL SELECT * FROM a) SELECT * FROM a",
        "CREATE TABLE a AS SELECT * FROM flows",
        "DROP TABLE flows",
        "SHOW TABLES",
        "EXPLAIN SELECT * FROM flows",
        "SELECT flow FROM flows; SELECT 1",
        "",
        "-- nothing",
    ],
)
def test_queries_that_are_refused(sql, run):
    with pytest.raises(ValueError, match="sql: "):
        queries.require_safe(sql)
    with pytest.raises(ValueError, match="sql: "):
        queries.rows(sql, run)


def test_a_reader_of_another_name_is_found_in_the_plan(run, tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("secret\n7\n")
    monkeypatch.setattr(queries, "require_safe", lambda sql: None)
    with pytest.raises(ConfigError, match="sql: reads a file"):
        queries.rows(f"SELECT * FROM read_csv('{tmp_path}/a.csv')", run)


def test_a_query_that_takes_too_long_is_given_up(monkeypatch):
    class Slow(pl.LazyFrame):
        def collect(self, **_: Any) -> Any:
            time.sleep(3.0)

    monkeypatch.setattr(queries, "QUERY_DEADLINE_S", 0.1)
    with pytest.raises(DeadlineError, match=r"waited 0\.1 s for the rows of a query: sql: join"):
        queries._collected(Slow())


def test_what_queries_see(run):
    summary = run.summary
    assert queries.rows("SELECT outcast_ratio FROM run", run) == [(summary.outcast_ratio,)]
    (packets,) = queries.rows("SELECT sum(packets) AS n FROM inputs", run)[0]
    assert packets == sum(port.packets for port in summary.drops.values())
    assert queries.rows("SELECT count(*) AS n FROM packets", run) == [
        (run.table("packets").height,)
    ]
    # polars' decimals become numbers.
    assert queries.rows("SELECT 100.0 * hops AS a FROM inputs ORDER BY hops LIMIT 1", run) == [
        (200.0,)
    ]
    joined = "SELECT count(*) AS n FROM packets p JOIN inputs i ON p.ingress = i.port"
    assert queries.rows(joined, run) == [(packets,)]
    # The small tables hide no table of the run.
    assert not set(queries.TABLES_OF_SUMMARY) & set(run.tables)
    with pytest.raises(InputError, match=r"sql: .*; its tables: bins, blackouts, ") as refused:
        queries.rows("SELECT x FROM floes", run)
    assert "\n" not in str(refused.value)
    # polars panics here.
    with pytest.raises(InputError, match="sql: assertion failed"):
        queries.rows("SELECT CAST(1 AS DECIMAL(99, 98)) FROM run", run)


@pytest.mark.parametrize(
    ("keys", "sql", "said"),
    [
        ({"kind": "number"}, "SELECT src FROM flows", "is not a number"),
        ({"kind": "choice", "choices": CHOICES}, "SELECT 'both' AS a", "gives 'both'; allowed is"),
        ({"kind": "packets", "widest": 1}, "SELECT flow FROM flows", "two numbers a row"),
    ],
)
def test_queries_that_give_no_answer(keys, sql, said, run):
    with pytest.raises(InputError, match=said):
        question(**keys, answer={"sql": sql}).right_answers(run)


def test_right_answers(run):
    rate = {"kind": "class_goodput_bps", "hops": 2}
    measured = question(kind="number", answer={"measure": rate, "times": 1e-6})
    (value,) = measured.right_answers(run) or ()
    assert value == pytest.approx(run.summary.classes["2"].mean_goodput_bps / 1e6)
    assert measured.right_answers(None) is None
    absent = question(kind="number", answer={"measure": {**rate, "hops": 8}})
    assert absent.right_answers(run) == ()
    assert question(kind="number", answer=3).right_answers(None) == (3.0,)
    assert question(kind="text").right_answers(run) is None


DAMAGED = (
    *(b"ratio: .nan", b"ratio: 010", b"ratio: \x07", b"ratio: \xe9", b'ratio: "\\x07"'),
    *(b'ratio: "abc', b"ratio: [[", b"ratio: *x", b"ratio: !foo 1", b"ratio: a: b"),
    *(b"ratio:\n\t- 3", b"ratio: 1\nratio: 2", b"ratio: " + b"[" * 1000, b"ratio: 3\n@@@"),
    *(b"'ratio': %x", b"ratio: 3\n---\nx: 1", b"ratio: |\n x\n\0y", b'"ratio" : 2026-99-99'),
)


@pytest.mark.parametrize("damaged", DAMAGED, ids=range(len(DAMAGED)))
def test_an_answer_is_judged_by_itself(damaged, tmp_path):
    shared = {"asked": "?", "points": 1}
    questions = [
        Number(kind="number", key="ratio", answer=3.0, **shared),
        Number(kind="number", key="rate", answer=3.0, **shared),
        Text(kind="text", key="why", least_words=1, **shared),
    ]
    before, after = b"\xef\xbb\xbf# mine\nrate: 2.5\n", b"\nwhy: |\n  ratio: in words\n"
    (tmp_path / "answers.yaml").write_bytes(before + damaged + after)
    answers = read_answers(tmp_path, questions)
    assert answers.given == {"rate": 2.5, "why": "ratio: in words"}
    assert "ratio" in answers.missing[0]
    assert answers.missing[0].isprintable()


def test_a_picture_is_a_file_of_the_folder(tmp_path):
    picture = question(kind="picture", most_mb=1)
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(2 << 20))
    with pytest.raises(ValueError, match=r"a\.png: larger than 1 MiB"):
        picture.read("a.png", tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "real/b.pdf").write_bytes(b"%PDF-1.7")
    assert picture.read("real/b.pdf", tmp_path) == "real/b.pdf"
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    with pytest.raises(ValueError, match="not a link"):
        picture.read("linked/b.pdf", tmp_path)
    # The folder itself may be where a link leads.
    assert picture.read("b.pdf", tmp_path / "linked") == "b.pdf"
