"""The verdict follows what is measured: without the effect, P3's main claim is contradicted."""

import os

from outcast.sweep.scheduler import Progress
from outcast.sweep.store import locked
from outcast.uses.papers import conclusion as reproduce
from outcast.uses.papers import recipe, runs, state
from outcast.uses.papers.verdict import Verdict

FAIR = {"queue": {"kind": "sfq", "limit": "60 packets", "buckets": 1024}}


class Silent:
    def update(self, progress: Progress, places: int) -> None:
        pass

    def note(self, text: str) -> None:
        print(text)


def test_verdict_of_p3(tmp_path):
    p3 = recipe.load_all()["P3"]
    point = p3.points[2].model_copy(update={"set": FAIR})
    short = {"duration": "300ms", "analysis.windows": ["300ms"]}
    claim = p3.claims[0]
    measure = claim.measure.model_copy(update={"interval": ("0s", "300ms")})
    changed = p3.model_copy(
        update={
            "points": (point,),
            "claims": (claim.model_copy(update={"measure": measure}),),
            "quick": recipe.Mode(repetitions=6, set=short),
        }
    )
    wanted = runs.planned_runs(changed, "quick")
    with locked(tmp_path) as store:
        needed = runs.needed(wanted, store, print)
        failed = runs.make_missing(needed, store, os.cpu_count() or 1, Silent())
        result = reproduce.conclude(changed, "quick", wanted, store, failed, state.present())
    assert result.failures == []
    verdict = result.claims[0].verdict
    assert verdict is Verdict.CONTRADICTED
    assert (tmp_path / "P3" / "figure.png").stat().st_size > 10_000
    # What is finished is found again, not run again.
    with locked(tmp_path) as store:
        before = {path: path.stat().st_mtime_ns for path in store.runs.iterdir()}
        assert runs.needed(wanted, store, print).missing == {}
        assert {path: path.stat().st_mtime_ns for path in store.runs.iterdir()} == before
