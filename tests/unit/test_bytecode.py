"""Modules whose bytecode is in one file."""

from __future__ import annotations

import marshal
import subprocess
import sys
from pathlib import Path

from controllers import bytecode

SOURCES = {
    "kept": "NAME = 'kept'\n",
    "kept.below": "from kept import NAME\ndef fail():\n    raise ValueError(NAME)\n",
    "alone": "import json, not_kept\n",
}

SCRIPT = """
import sys, traceback
from controllers import bytecode, slim
bytecode.use(sys.argv[1])
bytecode.use(sys.argv[1] + "/nothing-here")
slim.later("kept")
import alone, kept
from kept import below
import importlib.util
assert importlib.util.find_spec("kept.no_such_thing") is None
assert not hasattr(vars(kept), "NAME")
try:
    below.fail()
except ValueError as error:
    print(traceback.extract_tb(sys.exc_info()[2])[-1].line)
    print(error, kept.__path__, below.__file__, alone.json.__name__, alone.not_kept.WHERE)
"""


def test_modules_are_imported_from_one_file(tmp_path: Path) -> None:
    source = tmp_path / "source"
    modules = {}
    for name, text in SOURCES.items():
        is_package = name == "kept"
        path = source / (name.replace(".", "/") + ("/__init__.py" if is_package else ".py"))
        path.parent.mkdir(parents=True, exist_ok=True)
        # Bytecode is taken as it is, whatever the source says now. Only tracebacks show the source.
        path.write_text(text.replace("(NAME)", "(NAME)  # shown"))
        code = marshal.dumps(compile(text, str(path), "exec"))
        modules[name] = bytecode.Module(str(path), is_package, code)
    (tmp_path / bytecode.NAME).write_bytes(bytecode.dumps(modules))
    (tmp_path / "path").mkdir()
    (tmp_path / "path/not_kept.py").write_text("WHERE = 'elsewhere'\n")
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, str(tmp_path)],
        env={"PYTHONPATH": f"{tmp_path / 'path'}:{Path(__file__).parents[2]}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown, told = done.stdout.splitlines()
    assert shown == "raise ValueError(NAME)  # shown"
    assert told == f"kept ['{source}/kept'] {source}/kept/below.py json elsewhere"


def test_the_file_is_the_same_for_the_same_modules() -> None:
    one, other = bytecode.Module("/a.py", False, b"one"), bytecode.Module("/b.py", True, b"other")
    content = bytecode.dumps({"a": one, "b": other})
    assert content == bytecode.dumps({"b": other, "a": one})
    assert content.endswith(b"oneother")
