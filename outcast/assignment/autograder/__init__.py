"""An autograder for Gradescope: a zip file with all that its container needs.

```
setup.sh        makes a virtual environment of the wheels; Gradescope calls it once
run_autograder  grades one submission
class/          class.yaml, key and exercise/ of the class folder, without the students' folders
wheels/         outcast-testbed and outcast-guest
```

Source: "Autograder Specifications" (gradescope-autograders.readthedocs.io, specs).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from outcast import __version__, handed_in
from outcast.archive import zips
from outcast.errors import ConfigError, InputError

CLASS = "class"
_SCRIPTS = ("setup.sh", "run_autograder")
_OF_CLASS = ("class.yaml", "key")
_EXERCISE = "exercise"
_WHEELS = ("outcast_testbed", "outcast_guest")


@dataclass(frozen=True, slots=True)
class Made:
    """An autograder that was written.

    Attributes:
        path: the zip file.
        bytes: its size.
        wheels: the names of the wheels in it.
    """

    path: Path
    bytes: int
    wheels: tuple[str, ...]


def write(class_folder: Path, wheels: Path, path: Path) -> Made:
    """Writes the zip file, whole or not at all.

    It holds the class's key, so whoever gets it can compute all answers.

    Args:
        class_folder: the class folder.
        wheels: a folder with the wheels of this version, as `scripts/release.sh` makes it.
        path: the zip file.

    Raises:
        ConfigError: the class folder or a wheel is not there.
        OSError: a file cannot be read or written; the error names it.
    """
    members: dict[str, Path | bytes] = {}
    for name in _SCRIPTS:
        members[name] = (resources.files(__name__) / name).read_bytes()
    for name in _OF_CLASS:
        if not (class_folder / name).is_file():
            raise ConfigError(
                f"{class_folder}: has no {name}; allowed is a folder that `outcast assignment new` "
                "made, with its key"
            )
        members[f"{CLASS}/{name}"] = class_folder / name
    exercise = class_folder / _EXERCISE
    try:
        files = handed_in.plain_files(exercise)
    except InputError as error:
        raise ConfigError(str(error)) from None
    members |= {f"{CLASS}/{_EXERCISE}/{file.relative_to(exercise)}": file for file in files}
    found = [_wheel(wheels, project) for project in _WHEELS]
    members |= {f"wheels/{wheel.name}": wheel for wheel in found}
    today = time.gmtime()
    zips.write(path, members, (today.tm_year, today.tm_mon, today.tm_mday), _SCRIPTS)
    return Made(path, path.stat().st_size, tuple(wheel.name for wheel in found))


def _wheel(folder: Path, project: str) -> Path:
    named = sorted(folder.glob(f"{project}-{__version__}-*.whl"))
    if len(named) != 1:
        raise ConfigError(
            f"--wheels {folder}: has {len(named)} wheels {project}-{__version__}-*.whl; allowed is "
            "one; in a checkout, scripts/release.sh FOLDER makes them"
        )
    return named[0]
