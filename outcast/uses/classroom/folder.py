"""A student's folder: its paths, its owner, and how it is made.

assignment.yaml names the student, and only the class's key can prove that this is true.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import yaml
from pydantic import ConfigDict, Field, StringConstraints, ValidationError

from outcast import files, handed_in
from outcast.errors import ConfigError, InputError
from outcast.files import write_text
from outcast.handed_in import FileName
from outcast.records import RunDirectory
from outcast.uses.classroom import answers, documents
from outcast.uses.classroom.documents import Name, Part, Scalar
from outcast.uses.classroom.exercise import Exercise, RunTask
from outcast.uses.classroom.questions import Question

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
        description="what the teacher lets students see, `none` or `points`"
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
        content = json.dumps([*names, parameters, identity.seed, identity.feedback])
        return self._digest("ticket", content).hex()

    def is_genuine(self, identity: Identity) -> bool:
        return hmac.compare_digest(self.ticket(identity).encode(), identity.ticket.encode())


_Model = TypeVar("_Model", bound=Part)

FILE = "assignment.yaml"
MOST_BYTES = 16 << 30
"""Grading copies a submission's runs, so they have a limit. The tasks give a hundredth of it."""

_PAGES = Path(__file__).parent / "pages"
"""Pages of the documentation that a student needs: links to the files in docs/."""
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")

_HEADER = """\
# What was issued to you. Change nothing here: grading compares it with the ticket.
"""


class Handout(Identity):
    """assignment.yaml: whose folder it is, and the exercise without anything secret.

    Grading reads the identity alone. The other keys are what the student's own checks need.
    """

    title: str
    runs: dict[Name, RunTask]
    questions: tuple[Question, ...] = Field(description="without their answers")
    issued: dict[FileName, str] = Field(
        description="by name, the text of each configuration as it was handed out"
    )


@dataclass(frozen=True, slots=True)
class Folder:
    """The paths of one student's folder, and its readers."""

    path: Path

    @property
    def assignment(self) -> Path:
        return self.path / FILE

    @property
    def answers(self) -> Path:
        return self.path / answers.FILE

    def config(self, task: RunTask) -> Path:
        return self.path / task.config

    def run(self, run: str) -> RunDirectory:
        return RunDirectory(self.path / "runs" / run)

    def identity(self) -> Identity:
        """The folder's owner, as the folder states it; only the class's key can prove that.

        Raises InputError: there is no assignment.yaml, it cannot be read, or there are links.
        """
        return self._as(Identity)

    def handout(self) -> Handout:
        """The exercise that the student was given. Raises InputError as `identity` does."""
        return self._as(Handout)

    def _as(self, model: type[_Model]) -> _Model:
        # A teacher may look at a folder that was handed in.
        for path in (self.path / name for name in ("configs", "runs", FILE, answers.FILE)):
            if path.is_symlink():
                raise InputError(f"{path}: is a symbolic link; allowed are files and folders")
            if path.is_dir():
                handed_in.require_plain(path, most_bytes=MOST_BYTES)
        try:
            return model.model_validate(handed_in.read_yaml(self.assignment))
        except ValidationError as error:
            raise InputError(f"{self.assignment}: {handed_in.first_problem(error)}") from None
        except FileNotFoundError:
            of_class = ", such as one below its handout/" * (self.path / "class.yaml").exists()
            raise InputError(
                f"{self.path}: no {FILE}; allowed is a student's folder that `outcast assignment "
                f"new` made{of_class}"
            ) from None


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder that becomes `target` when the block ends well, and goes away otherwise.

    Raises ConfigError: `target` exists, or cannot be made.
    """
    if os.path.lexists(target):
        raise ConfigError(f"{target}: exists; allowed is a new folder")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        files.make_folders(partial)
        try:
            yield partial
            files.hand_over(partial)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        what = files.describe(error).replace(str(partial), str(target))
        raise ConfigError(f"{what}; allowed is a new folder of yours") from None


def fill(folder: Path, identity: Identity, exercise: Exercise) -> Folder:
    """Writes all of a student's folder into an empty one.

    Nothing of the solution, of the answers and of how they are computed goes into it.

    Raises ConfigError: a text of the exercise cannot be filled.
    """
    texts = _texts(identity, exercise)
    (folder / "configs").mkdir()
    (folder / "runs").mkdir()
    for name, text in texts.items():
        write_text(folder / name, text)
    for page in sorted(_PAGES.glob("*.md")):
        # Its links lead to pages that a student's folder lacks.
        text = _LINK.sub(r"\1", page.read_text(encoding="utf-8"))
        write_text(folder / page.name, text)
    return Folder(folder)


def _texts(identity: Identity, exercise: Exercise) -> dict[str, str]:
    of_student = exercise.with_values(identity.values)
    configs = {task.config: of_student.text(task.config) for task in exercise.runs.values()}
    texts = {
        "task.md": of_student.text("task.md"),
        FILE: _assignment_text(identity, of_student, configs),
        answers.FILE: answers.blank(of_student.questions),
        **configs,
    }
    if (exercise.folder / "notebook.py").is_file():
        # A notebook is a program, in which double braces have another meaning.
        texts["notebook.py"] = documents.read_text(exercise.folder / "notebook.py")
    return texts


def _assignment_text(identity: Identity, exercise: Exercise, configs: Mapping[str, str]) -> str:
    tree = {
        **identity.model_dump(by_alias=True),
        "title": exercise.title,
        "runs": {name: task.model_dump(mode="json") for name, task in exercise.runs.items()},
        "questions": [question.handed_out() for question in exercise.questions],
        "issued": dict(configs),
    }
    return _HEADER + yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)
