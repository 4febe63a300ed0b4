"""Breaks each rule of mutations.yaml in turn, and shows that a test notices it.

    python -m tests.golden.mutations [WORD]

Each mutation is made in a copy of the project. The tests of its rules run there and must fail.

Some rules keep the ledger from removing what is not ours. Without them a test could remove what
the machine needs. So the program wants root, and the tests run as a user who owns only the copy, in
process and mount namespaces of their own.

With WORD, only mutations whose name contains it are made.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
OWNS_NOTHING = 61_234
"""The number of a user who owns no file and no process on any machine."""


@dataclass(frozen=True)
class Mutation:
    """One rule undone: a text in a module, and what replaces it.

    Attributes:
        room: the folder of `outcast` that the module is in.
        tests: the names of the unit tests that must fail.
    """

    name: str
    module: str
    text: str
    replacement: str
    room: str
    tests: tuple[str, ...]

    def path(self, root: Path) -> Path:
        """The file of the module below the project's root."""
        (path,) = (root / "outcast" / self.room).rglob(f"{self.module}.py")
        return path


MUTATIONS = [
    Mutation(*rule, group["room"], tuple(group["tests"]))
    for group in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    for rule in group["rules"]
]


def survives(mutation: Mutation, folder: Path) -> bool:
    """Returns whether all tests pass with the mutation."""
    path = mutation.path(folder)
    original = path.read_text()
    path.write_text(original.replace(mutation.text, mutation.replacement))
    try:
        return passes(folder, mutation.tests)
    finally:
        path.write_text(original)


def passes(folder: Path, names: Iterable[str]) -> bool:
    """Returns whether all these tests pass in a copy of the project."""
    unit = folder / "tests/unit"
    tests = [str(path) for name in names for path in unit.rglob(f"test_{name}.py")]
    user = [f"--reuid={OWNS_NOTHING}", f"--regid={OWNS_NOTHING}", "--clear-groups"]
    command = [
        *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("setpriv", *user, "--no-new-privs", "--bounding-set=-all"),
        *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests),
    ]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "TMPDIR": str(folder / "tmp"),
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, check=False, timeout=600
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def copied(folder: Path) -> None:
    """Copies the project into a folder, for the user who owns nothing else."""
    for part in ("outcast", "tests", "configs", "controllers", "topologies", "scripts"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / part, folder / part, ignore=ignore)
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    (folder / "tmp").mkdir()
    for path in (folder, *folder.rglob("*")):
        os.chown(path, OWNS_NOTHING, OWNS_NOTHING, follow_symlinks=False)


def main() -> None:
    """Prints each mutation's fate; exit status 1 if one survives."""
    if os.geteuid() != 0:
        raise SystemExit("root is needed, because the tests run as a user who owns nothing")
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [mutation for mutation in MUTATIONS if word in mutation.name]
    alive = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copied(folder)
        for names in dict.fromkeys(mutation.tests for mutation in chosen):
            if not passes(folder, names):
                raise SystemExit(f"tests fail without any mutation: {', '.join(names)}")
        for mutation in chosen:
            survived = survives(mutation, folder)
            print(f"{'SURVIVED' if survived else 'noticed':>8}  {mutation.name}", flush=True)
            if survived:
                alive.append(mutation)
    sys.exit(1 if alive else 0)


if __name__ == "__main__":
    main()
