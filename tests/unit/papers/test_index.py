"""The page of a reproduction."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from outcast.errors import ConfigError
from outcast.uses.papers import conclusion as reproduce
from outcast.uses.papers import families, recipe
from outcast.uses.papers.result import (
    ClaimRecord,
    FailureRecord,
    PointRecord,
    Result,
    describe,
    write_result,
)
from outcast.uses.papers.state import State
from outcast.uses.papers.verdict import Verdict, verdict_text
from scripts import reproduction_docs as docs
from tests.unit.view.test_report import Checker


def check(text: str) -> Checker:
    """Checks that a page is whole, and loads nothing from elsewhere."""
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    assert set(checker.targets) <= set(checker.ids)
    assert not re.search(r"(src|href)=\"https?:", text)
    return checker


def rows(text: str, caption: str) -> list[str]:
    """The rows of a page's table, without its head."""
    table = text[text.index(f"{caption}</caption>") :]
    return re.findall(r"<tr>(.*?)</tr>", table[: table.index("</table>")])[1:]


VERDICTS = (*(one for one in Verdict if one is not Verdict.MIXED), None)
FAMILIES = [*families.load()["sources"]]
STATE = State(outcast="0", commit="a" * 40, code="c0de", kernel="6.1 abc", root="r00t")


def make_result(
    name: str, verdict: Verdict | None, failures: int = 0, profile: str | None = None
) -> Result:
    claim = ClaimRecord(
        text="less <than> half",
        rule="ratio at least 2",
        family=FAMILIES[VERDICTS.index(verdict)],
        apart="",
        note="",
        median=6.5,
        low=5,
        high=9,
        p=None if verdict is None else 0.001,
        verdict=verdict,
    )
    point = PointRecord(
        label="twelve",
        config="p3c",
        set={"duration": "1s"},
        seeds=[1, 2],
        values={"ratio": [6, 7]},
    )
    return Result(
        id=name,
        title=f"Title of {name}",
        source="A source",
        reported="7x below",
        differs="",
        reason="",
        unjudged="That <this> holds",
        mode="quick",
        claims=[claim],
        points=[point],
        failures=[FailureRecord(label="twelve", seed=3, reason="it <failed>")] * failures,
        state=STATE,
        profile=profile,
        noise=profile or "jitter",
        engine="virtual",
        seconds=1,
        command=f"outcast reproduce {name} --quick",
    )


def store(
    folder: Path, name: str, verdict: Verdict | None = Verdict.REPRODUCED, **more: Any
) -> Path:
    """Stores a row's result, made by `state`. Returns its folder."""
    state = more.pop("state", STATE)
    made = make_result(name, verdict, **more)
    place = reproduce.folder_of(folder, name, made.profile)
    place.mkdir(parents=True)
    write_result(place, made.model_copy(update={"state": state}))
    return place


def make_reproduction(folder: Path) -> list[str]:
    """A row for each verdict, and their names. The last has a failed run and no figure."""
    names = list(recipe.load_all())[: len(VERDICTS)]
    for name, verdict in zip(names, VERDICTS, strict=True):
        place = store(folder, name, verdict, failures=int(verdict is None))
        if verdict is not None:
            Image.new("RGBA", (1200, 600), "#0072B2").save(place / reproduce.FIGURE)
    return names


@pytest.fixture
def report(verb) -> Callable[[Path], str]:
    """Writes the page of a folder of results, and returns it."""

    def written(folder: Path) -> str:
        assert verb("report", folder).out == f"{folder / 'index.html'}\n"
        return (folder / "index.html").read_text(encoding="utf-8")

    return written


def test_every_family_with_its_verdict_in_words_and_a_section_for_each_figure(tmp_path, report):
    names = make_reproduction(tmp_path / "made")
    text = report(tmp_path / "made")
    checker = check(text)
    assert checker.loads == []
    assert {*names} <= set(checker.ids)
    shown = {VERDICTS[1]: "doubtful", None: "none", Verdict.CONTRADICTED: "bad"}
    for row, name, verdict in zip(rows(text, "All families"), names, VERDICTS, strict=True):
        # Nothing of a claim that says nothing is told by its family.
        told = Verdict.INCONCLUSIVE if verdict is Verdict.VACUOUS else verdict
        badge = "good" if verdict is Verdict.REPRODUCED else shown.get(verdict, "doubtful")
        assert f'class="badge {badge}"' in row
        assert f"{verdict_text(told)}</span>" in row
        assert f"(1 {verdict_text(verdict)})" in row
        assert name in row
    assert text.count("6.5 [5, 9]") == len(names)
    assert text.count("data:image/png;base64,") == 6
    assert "No figure, because no run has a result." in text
    top = text[: text.index("<main")]
    assert "1 runs are left out" in top
    assert f"{names[-1]}: twelve, seed 3: it &lt;failed&gt;" in top
    assert "less &lt;than&gt; half" in text
    assert "That &lt;this&gt; holds" in text
    assert "outcast 0 (commit aaaaaaaaaaaa, code c0de), kernel 6.1 abc, root r00t" in text
    assert "noise jitter; virtual engine" in text


def test_a_stored_result_has_the_present_remarks_and_verdicts_of_its_recipe(tmp_path):
    known = recipe.load_all()["P14-P15"]
    assert known.differs
    assert known.reason
    said = {"differs": "nothing", "reason": "a wrong reason", "unjudged": "what a claim judges now"}
    values = {describe(known.claims[0].measure): [1.9, 2, 2.1, 1.95, 2.05, 2.2]}
    made = make_result("P14-P15", Verdict.CONTRADICTED)
    (point,) = (one for one in known.points if one.label == "RED")
    settings = known.settings(point, known.quick)
    of_red = {"label": "RED", "set": settings, "seeds": [*range(1, 7)], "values": values}
    red = made.points[0].model_copy(update=of_red)
    docs.store([made.model_copy(update={**said, "points": [red]})], tmp_path)
    [result] = docs.stored(tmp_path)
    for remark in said:
        assert getattr(result, remark) == getattr(known, remark)
    assert [claim.text for claim in result.claims] == [claim.text for claim in known.claims]
    assert result.claims[0].verdict is Verdict.UNCONTROLLED
    # What no run has measured has no verdict.
    assert {claim.verdict for claim in result.claims[1:]} == {None}


def test_results_of_two_states_are_not_shown_on_one_page_and_not_stored(tmp_path, verb):
    for name, code in (("P3", "c0de"), ("P4", "0ther")):
        store(tmp_path, name, state=STATE.model_copy(update={"code": code}))
    (line,) = verb("report", tmp_path, status=2).err.splitlines()
    assert "P3 is of outcast 0 (commit aaaaaaaaaaaa, code c0de)" in line
    assert "P4 is of outcast 0 (commit aaaaaaaaaaaa, code 0ther)" in line
    assert "outcast reproduce P3 --quick -o NEW" in line
    with pytest.raises(ConfigError, match="P3 is of"):
        docs.write([tmp_path], tmp_path / "docs")
    assert not {"index.html", "docs"} & {path.name for path in tmp_path.iterdir()}
