"""What counts as a copy, and which side is blamed."""

from __future__ import annotations

from outcast.assignment import copies
from outcast.assignment import old_tasks as tasks
from outcast.assignment.copies import Copy, Submission
from outcast.assignment.evidence import Evidence, State
from outcast.assignment.old_folder import Identity

ANA, BEN = Identity("nets", "ana"), Identity("nets", "ben")


def handed(
    identity: Identity,
    *,
    task: tasks.Task = tasks.UNFAIR,
    state: State = "consistent",
    seed: int | None = None,
    captures: str = "",
    texts: tuple[str, ...] = (),
) -> Submission:
    of_the_run = Evidence(
        task,
        state,
        seed=identity.seed if seed is None else seed,
        captures=frozenset({captures or f"of {identity.student}"}),
    )
    return Submission(identity.student, identity, [of_the_run], texts)


def found(*each: Submission) -> dict[str, Copy]:
    copied = copies.find(each)
    assert len(copied) == len({copy.place for copy in copied})
    return {copy.place: copy for copy in copied}


def test_two_that_have_nothing_in_common() -> None:
    assert found(handed(ANA), handed(BEN)) == {}


def test_a_seed_of_another_student_is_held_against_who_should_have_another() -> None:
    got = found(handed(ANA), handed(BEN, seed=ANA.seed))
    assert got["ben"].certain
    assert not got["ana"].certain
    assert f"seed {ANA.seed} is used by ana too" in got["ben"].reason


def test_one_seed_in_different_tasks_is_no_copy() -> None:
    assert found(handed(ANA), handed(BEN, seed=ANA.seed, task=tasks.REMEDY)) == {}


def test_of_equal_captures_the_genuine_ones_are_no_copy() -> None:
    got = found(
        handed(ANA, state="genuine", captures="same"), handed(BEN, state="other", captures="same")
    )
    assert (got["ana"].certain, got["ben"].certain) == (False, True)
    got = found(handed(ANA, captures="same"), handed(BEN, state="forged", captures="same"))
    assert (got["ana"].certain, got["ben"].certain) == (False, True)
    both = found(handed(ANA, captures="same"), handed(BEN, captures="same"))
    assert all(copy.certain for copy in both.values())


def test_words_alike_are_no_proof() -> None:
    got = found(handed(ANA, texts=("A  queue\nfills",)), handed(BEN, texts=("a queue fills",)))
    assert [copy.certain for copy in got.values()] == [False, False]
