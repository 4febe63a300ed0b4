"""What two submissions have in common that they should not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outcast.assignment.evidence import Evidence
from outcast.assignment.folder import Identity


@dataclass(frozen=True, slots=True)
class Handed:
    """What is compared of one submission: `place` is its folder, as named by the teacher."""

    place: str
    identity: Identity
    runs: Sequence[Evidence]
    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Copy:
    """One thing in common.

    Attributes:
        place: the submission that it is held against.
        reason: in a line.
        certain: not where the other one copied, or where the teacher has to judge.
    """

    place: str
    reason: str
    certain: bool = True


def find(handed: Sequence[Handed]) -> list[Copy]:
    """Every copy, for each side of it that did not prove its own to be genuine."""
    return [*_students(handed), *_runs(handed), *_texts(handed)]


def _students(handed: Sequence[Handed]) -> Iterator[Copy]:
    places: dict[Identity, list[str]] = defaultdict(list)
    for each in handed:
        places[each.identity].append(each.place)
    for identity, found in places.items():
        for place in found:
            others = ", ".join(other for other in found if other != place)
            if others:
                yield Copy(place, f"{identity.student} handed in twice, see {others}")


def _runs(handed: Sequence[Handed]) -> Iterator[Copy]:
    pairs = [(each, run) for each in handed for run in each.runs]
    for mine, run in pairs:
        for other, its in pairs:
            if other is mine or other.identity == mine.identity:
                continue
            where = f"runs/{run.task.name}"
            if run.captures & its.captures:
                yield Copy(
                    mine.place,
                    f"{where}: the captures are those of {other.place}/runs/{its.task.name}",
                    certain=not _rightful(run, its),
                )
            elif run.seed is not None and run.task == its.task and run.seed == its.seed:
                yield Copy(
                    mine.place,
                    f"{where}: seed {run.seed} is used by {other.place} too",
                    certain=run.seed != mine.identity.seed,
                )


def _rightful(mine: Evidence, its: Evidence) -> bool:
    """Whether, of two runs with the same captures, the first is the one that was copied."""
    if mine.state == "genuine":
        return True
    return mine.state == "consistent" and its.state in ("other", "forged")


def _texts(handed: Sequence[Handed]) -> Iterator[Copy]:
    places: dict[str, list[Handed]] = defaultdict(list)
    for each in handed:
        for text in {" ".join(text.lower().split()) for text in each.texts}:
            places[text].append(each)
    for text, found in places.items():
        for mine in found:
            others = [each.place for each in found if each.identity != mine.identity]
            if others:
                reason = f"answer {text[:40]!r}... word for word as in {', '.join(others)}"
                yield Copy(mine.place, reason, certain=False)
