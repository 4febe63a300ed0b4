"""Who a student's folder belongs to, and what the class's key draws for each student."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from outcast.assignment.documents import Scalar
from outcast.assignment.exercise import Exercise

_SEEDS = 10**9


@dataclass(frozen=True, slots=True)
class Identity:
    """The values that one student was issued; assignment.yaml holds them.

    Attributes:
        class_name, student, exercise: names.
        parameters: the student's values of the exercise's parameters.
        seed: decides what is random in the student's runs, from 1 to 10^9.
        feedback: what the teacher lets students see, see `classes.FEEDBACK`.
        ticket: the key's HMAC of all of these. Only who has the key can make it.
    """

    class_name: str
    student: str
    exercise: str
    parameters: Mapping[str, Scalar]
    seed: int
    feedback: str
    ticket: str = ""

    @property
    def values(self) -> dict[str, Scalar]:
        """A value for every placeholder of the exercise."""
        own: dict[str, Scalar] = {
            "class": self.class_name,
            "student": self.student,
            "seed": self.seed,
        }
        return {**own, **self.parameters}

    def run_seed(self, predicted: Mapping[str, str]) -> int:
        """The seed of a run.

        Args:
            predicted: by question, the predictions that come before the run; none for a run with
                the student's own seed. Other predictions give another seed.
        """
        if not predicted:
            return self.seed
        text = json.dumps([self.ticket, self.seed, sorted(predicted.items())])
        return _as_seed(hashlib.sha256(text.encode()).digest())


def _as_seed(digest: bytes) -> int:
    return 1 + int.from_bytes(digest[:8], "big") % _SEEDS


@dataclass(frozen=True, slots=True)
class Key:
    """A class's key: 32 bytes that only the teacher has.

    Everything that differs between students is the HMAC-SHA256 (RFC 2104) of what it is for, of
    the class and of the student.
    """

    secret: bytes

    def _digest(self, purpose: str, *words: str) -> bytes:
        # JSON keeps the words apart: "a" and "bc" are not "ab" and "c".
        return hmac.new(self.secret, json.dumps([purpose, *words]).encode(), "sha256").digest()

    def seed(self, class_name: str, student: str, purpose: str) -> int:
        """A seed from 1 to 10^9."""
        return _as_seed(self._digest(f"seed {purpose}", class_name, student))

    def parameters(self, class_name: str, student: str, exercise: Exercise) -> dict[str, Scalar]:
        """A student's values of the exercise's parameters."""
        return {
            name: choices[
                int.from_bytes(self._digest(f"parameter {name}", class_name, student)[:8], "big")
                % len(choices)
            ]
            for name, choices in exercise.parameters.items()
        }

    def issued(
        self,
        class_name: str,
        student: str,
        exercise: Exercise,
        feedback: str = "none",
        *,
        shared: bool = False,
    ) -> Identity:
        """Issues a student of this class what is drawn for them, with its ticket.

        With `shared` the parameters are those of the whole class; seeds never are.
        """
        identity = Identity(
            class_name=class_name,
            student=student,
            exercise=exercise.name,
            parameters=self.parameters(class_name, "" if shared else student, exercise),
            seed=self.seed(class_name, student, "runs"),
            feedback=feedback,
        )
        return replace(identity, ticket=self.ticket(identity))

    def ticket(self, identity: Identity) -> str:
        """The ticket of what was issued, in hexadecimal; the identity's own is not looked at."""
        told = json.dumps(
            [
                identity.class_name,
                identity.student,
                identity.exercise,
                sorted(identity.parameters.items()),
                identity.seed,
                identity.feedback,
            ]
        )
        return self._digest("ticket", told).hex()

    def is_genuine(self, identity: Identity) -> bool:
        """Whether the ticket is that of the key."""
        return hmac.compare_digest(self.ticket(identity).encode(), identity.ticket.encode())
