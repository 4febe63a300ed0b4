"""Files of JSON that tests change."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def edit(path: Path, change: Callable[[Any], object]) -> None:
    """Changes the tree of a file in its place."""
    tree = json.loads(path.read_text())
    change(tree)
    path.write_text(json.dumps(tree))
