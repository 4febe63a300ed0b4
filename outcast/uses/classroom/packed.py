"""A submission in one small file: answers, configurations, and what replays are compared with.

```
assignment.yaml, answers.yaml, configs/, pictures that are answers
runs/NAME/            config.yaml, manifest.json, summary.json
```

A run's manifest has the hash of every capture and table, and of the guest that made it. Replays
make the captures again, so none has to be handed in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from outcast.api import collect, zips
from outcast.errors import InputError
from outcast.uses.classroom.answers import read_answers
from outcast.uses.classroom.folder import Folder
from outcast.uses.classroom.questions import Picture, Question

MOST_BYTES = 1_000_000
"""The limit for a packed submission. Pictures that are answers may come on top."""
MOST_UNPACKED_BYTES = 32 << 20
_OF_A_RUN = ("config.yaml", "manifest.json", "summary.json")


@dataclass(frozen=True, slots=True)
class Packed:
    """A packed submission: its size, how many files it has, and the names of its runs."""

    path: Path
    bytes: int
    files: int
    runs: tuple[str, ...]


def most_bytes(questions: Iterable[Question]) -> int:
    """The limit for a packed submission with these questions."""
    pictures = (question for question in questions if isinstance(question, Picture))
    return MOST_BYTES + sum(picture.most_mb << 20 for picture in pictures)


def write(folder: Folder, path: Path) -> Packed:
    """Packs a student's folder, whole or not at all.

    Raises:
        InputError: it is no student's folder, a run is not finished or was changed, or the file
            would be too large.
        OSError: a file cannot be read or written; the error names it.
    """
    handout = folder.handout()
    given = read_answers(folder.path, handout.questions).given
    pictured = [each.key for each in handout.questions if isinstance(each, Picture)]
    pictures = [given[key] for key in pictured if key in given]
    names = ("assignment.yaml", "answers.yaml", *(run.config for run in handout.runs.values()))
    members: dict[str, Path | bytes] = {
        name: folder.path / name for name in (*names, *pictures) if (folder.path / name).is_file()
    }
    runs = [name for name in handout.runs if folder.run(name).path.is_dir()]
    for name in runs:
        directory = folder.run(name)
        collected = collect(directory, "hashes")
        members |= {
            f"runs/{name}/{file}": directory.path / file
            for file in _OF_A_RUN
            if file in collected.manifest.files
        }
        members[f"runs/{name}/manifest.json"] = collected.manifest_text
    try:
        date_s, most = folder.answers.stat().st_mtime, most_bytes(handout.questions)
        count = zips.write(path, members, date_s, most_bytes=most)
    except InputError as error:
        raise InputError(f"{folder.path}: {error}") from None
    return Packed(path, path.stat().st_size, count, tuple(runs))


def unpack(path: Path, folder: Path, most: int = MOST_BYTES) -> None:
    """Unpacks a submission that a student handed in.

    `folder` is empty, and becomes the student's folder without captures. `most` is the limit for
    the file's size, in bytes.

    Raises:
        InputError: it is no zip file, or is broken or too large.
        OSError: a file cannot be written; the error names it.
    """
    size = path.stat().st_size if path.is_file() else 0
    if size > most:
        raise InputError(f"{path}: has {size} bytes; a packed submission has at most {most}")
    zips.unpack(path, folder, MOST_UNPACKED_BYTES)
