"""A small class, and a student's folder whose runs hold the reference switch's captures."""

from pathlib import Path

from outcast.uses.classroom.classes import Class, new_class
from outcast.uses.classroom.exercise import load_exercise
from outcast.uses.classroom.folder import Folder, Key
from outcast.uses.classroom.solution import solve
from tests.golden.handed_class import GoldenRunner

EXERCISE = Path(__file__).parent / "exercise"
"""An exercise with every kind of question."""

KEY = Key(bytes(range(32)))
PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)


def make_class(target: Path, *students: str) -> Class:
    """The class NETS26 with these students, and always the same key."""
    return new_class(target, "NETS26", load_exercise(EXERCISE), students, KEY)


def submit(klass: Class, student: str, target: Path) -> Folder:
    """An honest and complete submission."""
    folder = solve(klass, student, target, GoldenRunner())
    (folder.path / "sketch.png").write_bytes(PNG)
    text = folder.answers.read_text()
    folder.answers.write_text(text + "sketch: sketch.png\n")
    return folder
