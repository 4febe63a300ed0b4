"""A student's folder: its paths, its owner, and how it is made."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from outcast import files, handed_in
from outcast.assignment import old_answers as answers
from outcast.assignment import old_tasks as tasks
from outcast.errors import ConfigError, InputError
from outcast.files import write_text
from outcast.records.run_directory import RunDirectory

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SEEDS = 10**9
_MOST_BYTES = 16 << 30
"""Grading copies a submission's runs, so they have a limit. The tasks give a hundredth of it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The assignment and the student."""

    name: str
    student: str

    @property
    def seed(self) -> int:
        """The student's seed, from 1 to 10^9. A digest of assignment and student decides it."""
        digest = hashlib.sha256(f"{self.name}\n{self.student}\n".encode()).digest()
        return 1 + int.from_bytes(digest[:8], "big") % _SEEDS


@dataclass(frozen=True, slots=True)
class Folder:
    """The paths of one student's folder."""

    path: Path

    @property
    def assignment(self) -> Path:
        return self.path / "assignment.yaml"

    @property
    def answers(self) -> Path:
        return self.path / "answers.yaml"

    def config(self, task: tasks.Task) -> Path:
        return self.path / "configs" / f"{task.name}.yaml"

    def run(self, task: tasks.Task) -> RunDirectory:
        return RunDirectory(self.path / "runs" / task.name)

    def identity(self) -> Identity:
        """The assignment and student that assignment.yaml names.

        Raises:
            InputError: if there is no assignment.yaml, it cannot be read, or its seed does not
                follow from the assignment and the student.
        """
        where = self.assignment
        try:
            for name in ("configs", "runs"):
                if os.path.lexists(self.path / name):
                    handed_in.require_plain(self.path / name, most_bytes=_MOST_BYTES)
            tree: Any = handed_in.read_yaml(where)
        except FileNotFoundError:
            raise InputError(
                f"{self.path}: no assignment.yaml; allowed is a folder that `outcast assignment "
                "new` made"
            ) from None
        words = [tree.get(key) if isinstance(tree, dict) else None for key in ("name", "student")]
        for key, word in zip(("name", "student"), words, strict=True):
            if not isinstance(word, str) or not _WORD.fullmatch(word):
                raise InputError(f"{where}: {key}: allowed is a text of the form {_WORD.pattern}")
        identity = Identity(*(str(word) for word in words))
        if tree.get("seed") != identity.seed:
            raise InputError(
                f"{where}: seed: {tree.get('seed')!r}: allowed is {identity.seed}, which follows "
                "from name and student"
            )
        return identity


def make_folder(target: Path, identity: Identity) -> Folder:
    """Makes the folder of one student.

    Raises:
        ConfigError: if the name or the student is not a plain word, or `target` holds something.
    """
    for key, word in (("NAME", identity.name), ("--student", identity.student)):
        if not _WORD.fullmatch(word):
            raise ConfigError(f"{key}: {word!r}: allowed is a text of the form {_WORD.pattern}")
    folder = Folder(target)
    texts = {
        "task.md": _filled("task.md", identity),
        "read_run.py": _template("read_run.py"),
        "assignment.yaml": _filled("assignment.yaml", identity),
        "answers.yaml": answers.blank(),
        **{
            f"configs/{task.name}.yaml": _filled(f"{task.name}.yaml", identity)
            for task in tasks.TASKS
        },
    }
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ConfigError(f"{target}: exists and is not empty; allowed is a new folder")
        files.make_folders(target)
        try:
            for name in ("configs", "runs"):
                (target / name).mkdir()
            for name, text in texts.items():
                write_text(target / name, text)
        except OSError:
            # Otherwise the teacher could hand out half a folder.
            for name in ("configs", "runs"):
                shutil.rmtree(target / name, ignore_errors=True)
            for name in texts:
                (target / name).unlink(missing_ok=True)
            raise
        files.hand_over(target)
    except OSError as error:
        raise ConfigError(f"{target}: {error.strerror}; allowed is a new folder of yours") from None
    return folder


def _template(name: str) -> str:
    return (resources.files("outcast.assignment") / "templates" / name).read_text(encoding="utf-8")


def _filled(name: str, identity: Identity) -> str:
    text = _template(name)
    for key, value in (
        ("NAME_OF_ASSIGNMENT", identity.name),
        ("ID_OF_STUDENT", identity.student),
        ("SEED_OF_STUDENT", str(identity.seed)),
    ):
        text = text.replace(key, value)
    return text
