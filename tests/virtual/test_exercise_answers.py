"""Answers that a student reads where task and hints point to are what the class's key has.

A student has the report, the notebook, `outcast inspect` and the tables of the Python API; the key
is the exercise's queries. Both have to be of the same interval.
"""

import contextlib
import csv
import functools
import html
import io
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl
import pytest

from outcast.cli import invoke
from outcast.records.run import Run
from outcast.uses.classroom.evidence import Guest
from outcast.uses.classroom.exercise import Exercise, load_exercise, shipped
from outcast.view import report

Row = dict[str, str]
_CELL = re.compile(r"<t[dh][^>]*>(.*?)</t[dh]>", re.DOTALL)


@dataclass(eq=False)
class Student:
    """What a student has of one run."""

    exercise: Exercise
    run: Run

    @property
    def values(self) -> Mapping[str, Any]:
        """The numbers that the task sheet gives this student."""
        return self.exercise.values

    @cached_property
    def page(self) -> str:
        return report.make(self.run)

    def table(self, caption: str) -> list[Row]:
        """A table of the report, by the beginning of its caption."""
        found = re.search(rf"<table[^>]*><caption>{caption}.*?</table>", self.page, re.DOTALL)
        assert found, caption
        rows = [
            [html.unescape(re.sub("<[^>]*>", "", cell)) for cell in _CELL.findall(row)]
            for row in re.findall(r"<tr>.*?</tr>", found[0], re.DOTALL)
        ]
        return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]

    @functools.cache  # noqa: B019
    def notebook(self, before: str = "", after: str = "") -> str:
        """What the notebook prints, with one text of it changed."""
        text = (self.exercise.folder / "notebook.py").read_text().replace(before or "\0", after)
        words = [sys.executable, "-c", text, str(self.run.directory.path)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        return done.stdout

    def printed(self, pattern: str) -> float:
        return float(re.search(pattern, self.notebook())[1])

    def inspect(self, *options: str) -> list[Row]:
        path, said = str(self.run.directory.path), io.StringIO()
        with contextlib.redirect_stdout(said):
            assert invoke(["inspect", path, *options, "--format", "csv"]) == 0
        return list(csv.DictReader(io.StringIO(said.getvalue())))

    def port(self, hops: int) -> tuple[int, int]:
        """Packets and drops of a class's port, of the report's table of input ports."""
        (row,) = [
            row for row in self.table("By input port") if row["flows of"].startswith(f"{hops}-hop")
        ]
        return tuple(int(row[name].replace(",", "")) for name in ("packets", "dropped"))


def bps(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"bps": 1, "kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9}[unit]


def pointed(row: Row, name: str = "t_in_ms", lasts_us: str = "0") -> dict[str, float]:
    begin = float(row[name])
    return {"from": begin, "to": round(begin + float(lasts_us) / 1e3, 6)}


def outcast_lone_goodput(student: Student) -> float:
    (lone,) = [row for row in student.table("Every flow") if row["hops"] == "2"]
    return bps(lone["goodput"]) / 1e6


def outcast_ratio(student: Student) -> float:
    lone, rivals = (
        [bps(row["goodput"]) for row in student.table("Every flow") if row["hops"] == hops]
        for hops in ("2", "6")
    )
    return sum(rivals) / len(rivals) / lone[0]


def outcast_equal_rtt(student: Student) -> float:
    found = dict(re.findall(r"│ (h0_1_[23]) .* ┆ ([\d.]+) +│", student.notebook()))
    return float(found["h0_1_3"]) / float(found["h0_1_2"])


def outcast_lone_lost(student: Student) -> float:
    packets, dropped = student.port(2)
    return 100 * dropped / packets


def outcast_lone_waited(student: Student) -> float:
    halted_s = student.run.table("flows").filter(hops=2)["halted_s"].item()
    return 100 * halted_s / 0.3


def outcast_blackout(student: Student) -> dict[str, float]:
    for row in student.inspect("--blackouts", "--flow", "0"):
        if int(row["drops"]) > 2 and float(row["lasts_us"]) < 1000 and float(row["from_ms"]) > 10:
            return pointed(row, "from_ms", row["lasts_us"])
    raise AssertionError("no short blackout")


def outcast_taken_place(student: Student) -> dict[str, float]:
    rows = student.inspect()
    left = [float(row["t_out_ms"]) for row in rows if row["t_out_ms"]]
    rivals = [float(row["t_in_ms"]) for row in rows if row["flow"] != "0" and row["t_out_ms"]]
    for row in rows:
        at = float(row["t_in_ms"])
        before = max((other for other in rivals if at - 0.013 < other <= at), default=None)
        if row["flow"] != "0" or row["result"] != "dropped" or at < 11 or before is None:
            continue
        if not any(before + 0.005 <= out <= at + 0.005 for out in left):
            return {"from": before, "to": at}
    raise AssertionError("no place was taken")


def outcast_lone_second(student: Student) -> float:
    text = student.notebook("(of_lone=False)", "(of_lone=True)")
    return float(re.search(r"([\d.]+) % of the rivals' packets came second", text)[1])


def outcast_who_loses(student: Student) -> str:
    rows = student.table("Full frames that reached the nearly full queue")
    first, second = "lost, of those that came first", "lost, of those second"
    share = [[float(row[name].rstrip("%")) for name in (first, second)] for row in rows]
    return "second" if all(late > 1.3 * early for early, late in share) else "chance"


def outcast_contradicted(student: Student) -> str:
    lone, rivals = (dropped / packets for packets, dropped in map(student.port, (2, 6)))
    return "alike" if lone > 3 * rivals else ""


def call_a_drop(student: Student) -> dict[str, float]:
    rows = student.inspect("--verdict", "dropped")
    return pointed(next(row for row in rows if row["source"].startswith("10.0.0.2:")))


def download_mbps(student: Student) -> float:
    (row,) = [row for row in student.table("Every flow") if "download" in row["group"]]
    return bps(row["goodput"]) / 1e6


def call_verdict(student: Student) -> str:
    if student.printed(r"packets waited ([\d.]+) ms") > 20:
        return "worse"
    share = download_mbps(student) / student.values["rate_mbit"]
    return "trade" if share < 0.885 else "better"


def departures_ms(student: Student) -> pl.Series:
    start_ns = student.run.manifest.traffic.t_start_ns
    return (student.run.table("packets")["t_out"].drop_nulls().sort() - start_ns) / 1e6


def incast_idle(student: Student) -> float:
    blocks, packets = student.run.table("completions"), student.run.table("packets")
    took_ns = blocks["t_end"].max() - blocks["t_start"].min()
    busy_ns = 8 * (packets.filter(pl.col("t_out").is_not_null())["frame"] + 24).sum()
    return 100 * (1 - busy_ns / took_ns)


def incast_silence(student: Student) -> float:
    left_ms = departures_ms(student)
    return left_ms.filter(left_ms > 0).diff().max()


def incast_fatal_loss(student: Student) -> dict[str, float]:
    blocks = student.run.table("completions").sort("t_end")
    for number in range(2, 6):
        of_round = blocks.filter(round=number)
        begin_ms, end_ms = of_round["t_start"].min() / 1e6, of_round["t_end"].max() / 1e6
        if end_ms - begin_ms <= 150:
            continue
        last = f"10.0.0.{of_round['src'][-1].removeprefix('h')}:"
        for row in student.inspect("--verdict", "dropped"):
            is_of_last = row["source"].startswith(last)
            if is_of_last and begin_ms <= float(row["t_in_ms"]) <= end_ms:
                return pointed(row)
    raise AssertionError("no slow round")


READ: dict[str, dict[str, Callable[[Student], Any]]] = {
    "outcast": {
        "lone_goodput": outcast_lone_goodput,
        "outcast_ratio": outcast_ratio,
        "equal_rtt_ratio": outcast_equal_rtt,
        "lone_lost": outcast_lone_lost,
        "lone_waited": outcast_lone_waited,
        "blackout": outcast_blackout,
        "taken_place": outcast_taken_place,
        "lone_second": outcast_lone_second,
        "who_loses": outcast_who_loses,
        "contradicted": outcast_contradicted,
    },
    "bufferbloat": {
        "full_buffer": lambda of: of.values["buffer_kb"] * 8.192 / of.values["rate_mbit"],
        "call_wait": lambda of: of.printed(r"packets waited ([\d.]+) ms"),
        "download_rtt": lambda of: of.printed(r"round-trip time was ([\d.]+) ms"),
        "a_drop": call_a_drop,
        "who_fills": lambda of: "window",
        "shallow_goodput": download_mbps,
        "shallow_verdict": call_verdict,
    },
    "incast": {
        "shortest_round": lambda of: of.values["senders"] * 91 * 1538 * 8 / 1e6,
        "round_time": lambda of: of.printed(r"a round took ([\d.]+) ms"),
        "idle": incast_idle,
        "longest_silence": incast_silence,
        "fatal_loss": incast_fatal_loss,
        "cause": lambda of: "timer" if incast_silence(of) > 150 else "queueing",
    },
}
"""How a student reads the answer of each question that has one."""


@pytest.mark.parametrize("name", shipped())
def test_what_a_student_reads_is_graded_right(name, tmp_path, monkeypatch):
    exercise = load_exercise(name)
    asked = [each for each in exercise.questions if each.kind in ("number", "choice", "packets")]
    assert {question.key for question in asked} == set(READ[name])
    made = {
        run: Run(Guest().run(exercise.expected(run, seed=1), tmp_path / run))
        for run in dict.fromkeys(question.run for question in asked if question.run)
    }
    monkeypatch.setattr("outcast.view.report.page.drawn", lambda *_: None)
    students = {run: Student(exercise, run) for run in made.values()}
    wrong = {}
    for question in asked:
        run = made[question.run or next(iter(made))]
        answer = READ[name][question.key](students[run])
        right = question.right_answers(run)
        marked = question.mark(question.read(answer, tmp_path), right)
        if marked.state != "right":
            wrong[question.key] = (answer, right if right is None else right[:5])
    assert wrong == {}
