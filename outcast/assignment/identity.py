"""Who a student's folder belongs to, and what the class's key draws for each student."""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from outcast.assignment.documents import Scalar
from outcast.assignment.exercise import Exercise
from outcast.assignment.parts import Name, Part

_SEEDS = 10**9

WORD_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$"
"""Names of classes and students look like this, because folders and gradebooks have them too."""

Word = Annotated[str, StringConstraints(pattern=WORD_PATTERN)]


class Identity(Part):
    """The values that one student was issued; assignment.yaml begins with them."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    format: Literal["outcast-assignment-1"]
    class_name: Word = Field(validation_alias="class", serialization_alias="class")
    student: Word
    exercise: Annotated[str, StringConstraints(max_length=100)]
    parameters: dict[Name, int | float | str] = Field(
        description="the student's values of the exercise's parameters"
    )
    seed: int = Field(ge=1, le=10**9, description="decides what is random in the student's runs")
    feedback: Annotated[str, StringConstraints(max_length=20)] = Field(
        description="what the teacher lets students see, see `classes.FEEDBACK`"
    )
    ticket: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] = Field(
        description="the key's HMAC of all of these; only who has the key can make it"
    )

    @property
    def values(self) -> dict[str, Scalar]:
        """A value for every placeholder of the exercise."""
        return {
            "class": self.class_name,
            "student": self.student,
            "seed": self.seed,
            **self.parameters,
        }


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
        parameters = {}
        for name, choices in exercise.parameters.items():
            drawn = self._digest(f"parameter {name}", class_name, "" if shared else student)
            parameters[name] = choices[int.from_bytes(drawn[:8], "big") % len(choices)]
        identity = Identity.model_construct(
            format="outcast-assignment-1",
            class_name=class_name,
            student=student,
            exercise=exercise.name,
            parameters=parameters,
            seed=self.seed(class_name, student, "runs"),
            feedback=feedback,
        )
        return identity.model_copy(update={"ticket": self.ticket(identity)})

    def ticket(self, identity: Identity) -> str:
        """The ticket of what was issued, in hexadecimal; the identity's own is not looked at."""
        parameters = sorted(identity.parameters.items())
        names = [identity.class_name, identity.student, identity.exercise]
        told = json.dumps([*names, parameters, identity.seed, identity.feedback])
        return self._digest("ticket", told).hex()

    def is_genuine(self, identity: Identity) -> bool:
        """Whether the ticket is that of the key."""
        return hmac.compare_digest(self.ticket(identity).encode(), identity.ticket.encode())
