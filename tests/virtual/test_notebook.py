"""The notebook's cells run in order, and the figures that end a cell display themselves."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

RUN_CELLS = """
import ast, json, sys
names = {}
for number, cell in enumerate(json.load(sys.stdin)):
    *statements, last = ast.parse(cell).body
    assert isinstance(last, ast.Expr), f"cell {number} shows nothing"
    exec(compile(ast.Module(statements, []), f"cell {number}", "exec"), names)
    value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    assert value is not None, f"cell {number}"
    shown = getattr(value, "_repr_png_", None)
    print("figure" if shown is not None and shown().startswith(b"\\x89PNG") else repr(value))
"""


def test_the_notebook_runs_from_its_first_cell_to_its_last(tmp_path):
    cells = json.loads((ROOT / "docs/notebook.ipynb").read_text())["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    (tmp_path / "docs").mkdir()
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    done = subprocess.run(
        [sys.executable, "-c", RUN_CELLS],
        input=json.dumps(codes),
        capture_output=True,
        text=True,
        cwd=tmp_path / "docs",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = done.stdout.splitlines()
    assert shown.count("figure") == 3
    assert shown.count("True") == 2, done.stdout


def test_the_notebook_is_stored_without_results():
    """Else every opening of it would be a change, of megabytes."""
    cells = json.loads((ROOT / "docs/notebook.ipynb").read_text())["cells"]
    assert all(not cell.get("outputs") for cell in cells)
