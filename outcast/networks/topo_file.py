"""Runs a user's Python file in this process, as `mn --custom` does, and describes its `Topo`."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mininet.topo import Topo

from outcast.errors import ConfigError, did_you_mean
from outcast.networks import mininet_options


def read(path: Path, content: bytes, topo: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """The hosts, switches, routers, links and notes of the entry `topo` of the file's `topos`.

    Raises:
        ConfigError: one line that begins with the file.
        NetworkError: an option of a node or a link that cannot be honoured.
    """
    file = os.path.abspath(path)
    with _as_a_run(file):
        names = {"__name__": "outcast_topology", "__file__": file}
        try:
            exec(compile(content, file, "exec", dont_inherit=True), names)
            built = _built(path, names.get("topos"), topo, args)
        except ConfigError:
            raise
        except SyntaxError as error:
            where = f"{error.filename}:{error.lineno}" if error.lineno else file
            raise ConfigError(f"{where}: {error.msg}") from None
        except (Exception, SystemExit) as error:
            raise ConfigError(_raised(path, file, error)) from None
    return _described(built)


@contextlib.contextmanager
def _as_a_run(file: str) -> Iterator[None]:
    """The file finds its neighbours, draws the same each time, and prints to standard error."""
    drawn, searched, loaded = random.getstate(), list(sys.path), set(sys.modules)
    random.seed(0)
    sys.path.insert(0, os.path.dirname(file))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        random.setstate(drawn)
        sys.path[:] = searched
        # Another file may have a neighbour of the same name.
        folder = os.path.dirname(file) + os.sep
        for name in sys.modules.keys() - loaded:
            if str(getattr(sys.modules[name], "__file__", None)).startswith(folder):
                del sys.modules[name]


def _built(path: Path, topos: object, name: str, args: Mapping[str, Any]) -> Topo:
    if not isinstance(topos, Mapping) or not topos:
        raise ConfigError(
            f"{path}: has no `topos`; needed is a mapping as `mn --custom` takes it: "
            "topos = {'NAME': CLASS}"
        )
    if name not in topos:
        there = [str(key) for key in topos]
        raise ConfigError(
            f"{path}: topology.topo: topos has no {name!r}; allowed are {', '.join(there)}"
            f"{did_you_mean(name, there)}"
        )
    topo = topos[name](**args)
    if not isinstance(topo, Topo):
        raise ConfigError(
            f"{path}: topos[{name!r}] gives {type(topo).__name__}; allowed is a mininet.topo.Topo"
        )
    return topo


def _raised(path: Path, file: str, error: BaseException) -> str:
    """The user's line that was executed, and the exception."""
    lines = [at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename == file]
    where = f"{path}:{lines[-1]}" if lines else f"{path}: topology.args"
    if isinstance(error, SystemExit):
        return f"{where}: ends the program; allowed is a file that only defines its topos"
    return " ".join(f"{where}: {type(error).__name__}: {error}".split())


def _described(topo: Topo) -> dict[str, Any]:
    notes: dict[str, None] = {}
    routers = [name for name in topo.hosts() if mininet_options.routes(name, topo.nodeInfo(name))]

    def forwards(node: str) -> bool:
        return topo.isSwitch(node) or node in routers

    return {
        "hosts": [
            mininet_options.host(name, topo.nodeInfo(name))
            for name in topo.hosts()
            if name not in routers
        ],
        "switches": [
            mininet_options.switch(name, topo.nodeInfo(name), notes) for name in topo.switches()
        ],
        "routers": [{"name": str(name)} for name in routers],
        "links": [
            mininet_options.link(info, forwards, notes) for _, _, info in topo.links(withInfo=True)
        ],
        "notes": list(notes),
    }
