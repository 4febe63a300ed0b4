"""Configurations that come with outcast, in a checkout as in an installed package.

`configs/` holds what people start from, `configs/paper/` one file for each point of the sources,
and `configs/examples/` one for each of some questions that people have.
"""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent


def find(name: str) -> Path:
    """Path of the configuration of this name, without its ending.

    The file may be missing; then the path is where the configuration of a source would stand.
    """
    for folder in (_FOLDER, _FOLDER / "examples"):
        if (folder / f"{name}.yaml").exists():
            return folder / f"{name}.yaml"
    return _FOLDER / "paper" / f"{name}.yaml"


def everything() -> list[Path]:
    """Every configuration that comes with outcast, in the order of their names."""
    return sorted(_FOLDER.rglob("*.yaml"), key=lambda path: path.name)
