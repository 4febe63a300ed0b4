"""A class folder: class.yaml, the key, the exercise, and what was handed out."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, StringConstraints

from outcast import handed_in
from outcast.errors import ConfigError
from outcast.files import write_text
from outcast.uses.classroom.documents import Document, Part
from outcast.uses.classroom.exercise import Exercise, load_exercise
from outcast.uses.classroom.folder import (
    WORD_PATTERN,
    Folder,
    Identity,
    Key,
    Word,
    fill,
    new_folder,
)

_KEY_BYTES = 32

_HEADER = """\
# A class. `key` beside this file decides all seeds, and anyone with it can forge: keep both here.
# feedback: none (students see no marks) or points (the sheets that grading writes have them).
# parameters: own (each student has other ones) or shared (all have the same; seeds differ).
"""


class _ClassFile(Part):
    """class.yaml."""

    format: Literal["outcast-class-1"]
    name: Word
    exercise: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    feedback: Literal["none", "points"] = "none"
    parameters: Literal["own", "shared"] = "own"
    students: tuple[Word, ...] = Field(default=())


@dataclass(frozen=True)
class Class:
    """A teacher's class folder, whose files are read when they are first used.

    Every reader raises ConfigError if this is not a class folder, or the file is missing.
    """

    path: Path

    @cached_property
    def _file(self) -> _ClassFile:
        path = self.path / "class.yaml"
        if not path.exists():
            raise ConfigError(
                f"{self.path}: no class.yaml; allowed is a class folder that `outcast assignment "
                "new` made"
            )
        return Document.read(path).as_model(_ClassFile)

    @property
    def name(self) -> str:
        return self._file.name

    @property
    def feedback(self) -> str:
        """The parts of the marks that students may see; the file's header explains them."""
        return self._file.feedback

    @property
    def students(self) -> tuple[str, ...]:
        """Everyone who was given a folder."""
        return self._file.students

    @cached_property
    def exercise(self) -> Exercise:
        return load_exercise(self.path / "exercise", self._file.exercise)

    @cached_property
    def key(self) -> Key:
        path = self.path / "key"
        try:
            return Key(bytes.fromhex(path.read_text().strip()))
        except FileNotFoundError:
            raise ConfigError(
                f"{path}: there is no such file; only the teacher's class folder has the key"
            ) from None
        except ValueError:
            raise ConfigError(f"{path}: allowed are {2 * _KEY_BYTES} hexadecimal digits") from None

    def handed_out(self, student: str) -> Folder:
        return Folder(self.path / "handout" / student)

    def seed(self, student: str, purpose: str) -> int:
        """A seed from 1 to 10^9 that only the key gives; "" as student for the whole class."""
        return self.key.seed(self.name, student, purpose)

    def issued(self, student: str) -> Identity:
        """The student's identity, with the ticket that the key gives."""
        shared = self._file.parameters == "shared"
        return self.key.issued(self.name, student, self.exercise, self.feedback, shared=shared)

    def hand_out(self, students: Sequence[str]) -> list[Folder]:
        """Makes the folders of further students, and names these in class.yaml.

        Raises:
            ConfigError: a name is no plain word, or stands twice, or its folder is there already.
        """
        require_students(students, self.students)
        for student in students:
            if os.path.lexists(self.handed_out(student).path):
                raise ConfigError(
                    f"{self.handed_out(student).path}: exists, because {student} was handed a "
                    "folder already; remove it to make it again"
                )
        for student in students:
            with new_folder(self.handed_out(student).path) as partial:
                fill(partial, self.issued(student), self.exercise)
            listed = dict.fromkeys((*self.students, student))
            _write(self.path, self._file.model_copy(update={"students": tuple(listed)}))
            del self.__dict__["_file"]
        return [self.handed_out(student) for student in students]


def new_class(
    target: Path,
    name: str,
    exercise: Exercise,
    students: Sequence[str],
    key: Key | None = None,
    *,
    shared: bool = False,
) -> Class:
    """Makes a class folder, whole or not at all.

    None as `key` draws one. With `shared` all students get the same parameters.

    Raises ConfigError: a name is no plain word, or `target` holds something or cannot be made.
    """
    if not re.fullmatch(WORD_PATTERN, name):
        raise ConfigError(f"NAME: {name!r}: allowed is a text of the form {WORD_PATTERN}")
    require_students(students, ())
    with new_folder(target) as partial:
        # On a course's server the students have accounts, too.
        partial.chmod(0o700)
        key = key or Key(secrets.token_bytes(_KEY_BYTES))
        (partial / "key").touch(0o600)
        (partial / "key").write_text(f"{key.secret.hex()}\n")
        handed_in.require_plain(exercise.folder)
        copy, ignore = shutil.copyfile, shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(exercise.folder, partial / "exercise", ignore=ignore, copy_function=copy)
        (partial / "handout").mkdir()
        file = _ClassFile(format="outcast-class-1", name=name, exercise=exercise.name)
        _write(partial, file.model_copy(update={"parameters": "shared" if shared else "own"}))
        Class(partial).hand_out(students)
    return Class(target)


def require_students(students: Sequence[str], known: Sequence[str]) -> None:
    """Raises ConfigError if a name is no plain word, or two names differ only in their case.

    On a Mac or on Windows both students would have one folder.
    """
    taken = {student.lower() for student in known if student not in students}
    for student in students:
        if not re.fullmatch(WORD_PATTERN, student):
            raise ConfigError(
                f"--student: {student!r}: allowed is a text of the form {WORD_PATTERN}"
            )
        if student.lower() in taken:
            raise ConfigError(f"--student: {student}: is there already; allowed is each one once")
        taken.add(student.lower())


def _write(folder: Path, content: _ClassFile) -> None:
    tree = content.model_dump(mode="json")
    write_text(
        folder / "class.yaml",
        _HEADER + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True),
    )
