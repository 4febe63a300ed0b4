"""Runs a user's Python file and writes the network that its `Topo` builds, as JSON.

`python -m outcast.networks.build_topo` reads a JSON object from standard input: `file` (for
messages and for the file's own imports), `content` (the file's bytes in base64), `topo` (a key of
its `topos`) and `args`. It is a process of its own, because the file may print, change modules, end
the interpreter or never come to an end.

Standard output gets one JSON object: `network` with hosts, switches, links, lines and notes; or
`error`, one line. What the file prints goes to standard error.
"""

from __future__ import annotations

import base64
import inspect
import json
import os
import random
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mininet.topo import Topo

from outcast.errors import did_you_mean
from outcast.networks import mininet_options
from outcast.networks.mininet_options import OptionError


class _RefusedError(Exception):
    """The file cannot be used. The text is one line that begins with the file."""


def main() -> None:
    """Answers one request."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    file = str(request["file"])
    try:
        answer: dict[str, Any] = {
            "network": _network(
                file, base64.b64decode(request["content"]), request["topo"], request["args"]
            )
        }
    except _RefusedError as error:
        answer = {"error": " ".join(str(error).split())}
    with answers:
        json.dump(answer, answers)


def _network(file: str, content: bytes, topo: str, args: Mapping[str, Any]) -> dict[str, Any]:
    # What a file draws at random is the same every time, as everything of a run.
    random.seed(0)
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    lines = _note_lines(file)
    names = {"__name__": "outcast_topology", "__file__": os.path.abspath(file)}
    try:
        exec(compile(content, file, "exec", dont_inherit=True), names)
    except SyntaxError as error:
        where = f"{error.filename}:{error.lineno}" if error.lineno else file
        raise _RefusedError(f"{where}: {error.msg}") from None
    except BaseException as error:
        raise _RefusedError(_where_raised(file, error)) from None
    return _described(file, _built(file, names.get("topos"), topo, args), lines)


def _built(file: str, topos: object, name: str, args: Mapping[str, Any]) -> Topo:
    if not isinstance(topos, Mapping) or not topos:
        raise _RefusedError(
            f"{file}: has no `topos`; needed is a mapping as `mn --custom` takes it: "
            "topos = {'NAME': CLASS}"
        )
    if name not in topos:
        there = [str(key) for key in topos]
        raise _RefusedError(
            f"{file}: topology.topo: topos has no {name!r}; allowed are {', '.join(there)}"
            f"{did_you_mean(name, there)}"
        )
    make = topos[name]
    try:
        topo = make(**args)
    except BaseException as error:
        raised = traceback.extract_tb(error.__traceback__)
        if isinstance(error, TypeError) and not any(at.filename == file for at in raised):
            raise _RefusedError(_misfit(file, make, args, error)) from None
        raise _RefusedError(_where_raised(file, error)) from None
    if not isinstance(topo, Topo):
        raise _RefusedError(
            f"{file}: topos[{name!r}] gives {type(topo).__name__}; allowed is a mininet.topo.Topo"
        )
    return topo


def _where_raised(file: str, error: BaseException) -> str:
    """The user's line that was being executed, and the exception."""
    lines = [at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename == file]
    where = f"{file}:{lines[-1]}" if lines else file
    if isinstance(error, SystemExit):
        return f"{where}: ends the program; allowed is a file that only defines its topos"
    return f"{where}: {type(error).__name__}: {error}"


def _misfit(file: str, make: object, args: Mapping[str, Any], error: TypeError) -> str:
    """Arguments that do not fit: which are allowed, and where the file says so."""
    function: Any = make
    if inspect.isclass(make):
        own = [name for name in ("__init__", "build") if name in vars(make)]
        function = vars(make)[own[0]] if own else None
    code = getattr(function, "__code__", None)
    if code is None:
        return f"{file}: topology.args: {error}"
    parameters = list(inspect.signature(function).parameters.values())
    allowed = [
        parameter.name
        for parameter in (parameters[1:] if inspect.isclass(make) else parameters)
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    unknown = next((name for name in args if name not in allowed), "")
    return (
        f"{file}:{code.co_firstlineno}: topology.args: {error}; allowed are "
        f"{', '.join(allowed) or 'none'}{did_you_mean(unknown, allowed)}"
    )


def _note_lines(file: str) -> dict[str, int]:
    """Notes from now on by which line of the file each node and link is added."""
    lines: dict[str, int] = {}

    def noting(method: Callable[..., Any], subject: Callable[..., str]) -> Callable[..., Any]:
        def call(self: Topo, *args: Any, **kwargs: Any) -> Any:
            frame = inspect.currentframe()
            while frame is not None and frame.f_code.co_filename != file:
                frame = frame.f_back
            if frame is not None:
                lines.setdefault(subject(*args, **kwargs), frame.f_lineno)
            return method(self, *args, **kwargs)

        return call

    def of_node(name: object = "", **_options: object) -> str:
        return str(name)

    def of_link(node1: object = "", node2: object = "", *_more: object, **_options: object) -> str:
        return f"{node1} - {node2}"

    Topo.addNode = noting(Topo.addNode, of_node)
    Topo.addLink = noting(Topo.addLink, of_link)
    return lines


def _described(file: str, topo: Topo, lines: Mapping[str, int]) -> dict[str, Any]:
    notes: dict[str, None] = {}
    try:
        routers = [
            name for name in topo.hosts() if mininet_options.routes(name, topo.nodeInfo(name))
        ]
        hosts = [
            mininet_options.host(name, topo.nodeInfo(name))
            for name in topo.hosts()
            if name not in routers
        ]
        switches = [
            mininet_options.switch(name, topo.nodeInfo(name), notes) for name in topo.switches()
        ]
        links = [
            mininet_options.link(info, lambda node: topo.isSwitch(node) or node in routers, notes)
            for _, _, info in topo.links(withInfo=True)
        ]
    except OptionError as error:
        line = lines.get(error.subject)
        where = f"{file}:{line}" if line else file
        raise _RefusedError(f"{where}: {error}") from None
    return {
        "hosts": hosts,
        "switches": switches,
        "routers": [{"name": str(name)} for name in routers],
        "links": links,
        "lines": dict(lines),
        "notes": list(notes),
    }


if __name__ == "__main__":
    # The user's file finds its own modules, and not those of the folder that this one is in.
    sys.path[:] = [folder for folder in sys.path if folder != str(Path(__file__).parent)]
    main()
