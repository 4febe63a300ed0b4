"""Runs a user's Python file in this process, as `mn --custom` does, and describes its `Topo`."""

from __future__ import annotations

import contextlib
import os
import random
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from mininet.topo import Topo

from outcast import units
from outcast.errors import ConfigError, did_you_mean
from outcast.experiment import NetworkError

_HOST = ("ip", "mac", "role", "of")
_SWITCH = ("dpid", "layer")
_LINK = ("bw", "delay", "jitter", "loss", "max_queue_size")
_NOTED_OF_SWITCHES = ("protocols", "failMode", "datapath", "inband", "listenPort", "batch")
_NOTED_OF_LINKS = ("use_htb", "use_tbf", "use_hfsc", "r2q", "latency_ms")
_CLASSES = {
    "host": ("Host",),
    "switch": ("OVSSwitch", "OVSKernelSwitch", "Switch"),
    "link": ("Link", "TCLink"),
}
_PLACES = ("node1", "node2", "port1", "port2")
_TIME_UNITS = {
    **dict.fromkeys(("ns", "nsec", "nsecs"), "ns"),
    **dict.fromkeys(("us", "usec", "usecs"), "us"),
    **dict.fromkeys(("ms", "msec", "msecs"), "ms"),
    **dict.fromkeys(("s", "sec", "secs"), "s"),
}
"""tc(8)'s units, in those of a configuration."""


def routes(name: object, info: Mapping[str, Any]) -> bool:
    """Whether a host is a router, by `kind`. Raises NetworkError."""
    kind = info.get("kind", "host")
    if kind not in ("host", "router"):
        raise NetworkError(str(name), f"kind={kind!r:.60}: allowed are host and router")
    if kind == "router":
        _given(str(name), "host", info, ("kind",), ("isSwitch",))
    return bool(kind == "router")


def host(name: object, info: Mapping[str, Any]) -> dict[str, Any]:
    given = _given(str(name), "host", info, _HOST, ("isSwitch", "kind"))
    if info.get("inNamespace") is False:
        raise NetworkError(str(name), "inNamespace=False: allowed are hosts in their own namespace")
    if "ip" in given:
        given["ip"] = str(given["ip"]).partition("/")[0]
    return {"name": str(name), **{key: str(value) for key, value in given.items()}}


def switch(
    name: object, info: Mapping[str, Any], notes: MutableMapping[str, None]
) -> dict[str, Any]:
    """A switch's keys. Raises NetworkError. Adds to `notes` what is left out."""
    subject = str(name)
    given = _given(subject, "switch", info, _SWITCH, ("isSwitch", *_NOTED_OF_SWITCHES))
    _note(notes, "switches", info, _NOTED_OF_SWITCHES)
    if "dpid" in given:
        # Mininet takes it as hexadecimal digits, with or without colons (OVSSwitch).
        text = str(given["dpid"]).replace(":", "")
        if not re.fullmatch(r"[0-9a-fA-F]{1,16}", text):
            raise NetworkError(
                subject, f"dpid={given['dpid']!r}: allowed are up to 16 hexadecimal digits as text"
            )
        given["dpid"] = int(text, 16)
    return {"name": subject, **given}


def link(
    info: Mapping[str, Any],
    forwards: Callable[[str], bool],
    notes: MutableMapping[str, None],
) -> dict[str, Any]:
    """A link's ends and own settings. Raises NetworkError. Adds to `notes` what is left out."""
    first, second = str(info["node1"]), str(info["node2"])
    subject = f"{first} - {second}"
    options = {key: value for key, value in info.items() if key not in _PLACES}
    per_side = [options.pop(key, None) or {} for key in ("params1", "params2")]
    own = {}
    for node, side in zip((first, second), per_side, strict=True):
        if not isinstance(side, Mapping):
            raise NetworkError(subject, f"{side!r}: allowed is a mapping of options")
        both = {**options, **side}
        given = _given(subject, "link", both, _LINK, _NOTED_OF_LINKS)
        _note(notes, "links", both, _NOTED_OF_LINKS)
        words = _words(subject, given)
        if "queue" in words and not forwards(node):
            del words["queue"]
            notes["max_queue_size at a host's own end, where the queue holds 1000 packets"] = None
        if words:
            own[node] = words
    return {
        "ends": [f"{first}-eth{info['port1']}", f"{second}-eth{info['port2']}"],
        **({"own": own} if own else {}),
    }


def _given(
    subject: str,
    what: str,
    info: Mapping[str, Any],
    honoured: tuple[str, ...],
    passed: tuple[str, ...],
) -> dict[str, Any]:
    given = {}
    for key, value in info.items():
        if key == "cls":
            name = getattr(value, "__name__", str(value))
            if value is not None and name not in _CLASSES[what]:
                raise NetworkError(
                    subject,
                    f"cls={name}: outcast has its own; allowed are {', '.join(_CLASSES[what])}",
                )
        elif key in honoured:
            if value is not None:
                given[key] = value
        elif key not in passed and value not in (None, False) and key != "inNamespace":
            raise NetworkError(
                subject,
                f"the option {key}={value!r:.60} cannot be honoured; allowed are "
                f"{', '.join(honoured)}{did_you_mean(str(key), honoured)}",
            )
    return given


def _note(
    notes: MutableMapping[str, None], what: str, info: Mapping[str, Any], noted: tuple[str, ...]
) -> None:
    for key in noted:
        if info.get(key) not in (None, False):
            notes[f"{key} of {what}, which outcast sets up itself"] = None


def _words(subject: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """TCLink's options (mininet/link.py) as `links` has them, for the node that sends."""
    words: dict[str, Any] = {}
    for key, value in given.items():
        if key == "bw":
            bits = _number(subject, key, value, "a number of Mbps", 10**6)
            words["rate"] = units.format_rate(round(bits / 8) * 8)
        elif key == "loss":
            lost = _number(subject, key, value, "percent", Fraction(1, 100))
            if lost:
                words["loss"] = float(lost)
        elif key == "max_queue_size":
            packets = _number(subject, key, value, "a number of packets", 1)
            words["queue"] = {"kind": "pfifo", "limit": f"{int(packets)} packets"}
        else:
            words[key] = _time(subject, key, value)
    return words


def _number(subject: str, key: str, value: object, what: str, scale: int | Fraction) -> Fraction:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = Fraction(str(value))
    except (TypeError, ValueError, ZeroDivisionError):
        raise NetworkError(subject, f"{key}={value!r:.60}: allowed is {what}") from None
    if number < 0 or (number == 0 and key != "loss") or number > 10**6:
        raise NetworkError(subject, f"{key}={value!r:.60}: allowed is {what} above 0")
    return number * scale


def _time(subject: str, key: str, value: object) -> str:
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*", str(value))
    if match is None or match[2] not in _TIME_UNITS:
        raise NetworkError(
            subject, f"{key}={value!r:.60}: allowed is text with a unit, as {key}='5ms'"
        )
    return f"{match[1]}{_TIME_UNITS[match[2]]}"


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
    routers = [name for name in topo.hosts() if routes(name, topo.nodeInfo(name))]

    def forwards(node: str) -> bool:
        return topo.isSwitch(node) or node in routers

    return {
        "hosts": [host(name, topo.nodeInfo(name)) for name in topo.hosts() if name not in routers],
        "switches": [switch(name, topo.nodeInfo(name), notes) for name in topo.switches()],
        "routers": [{"name": str(name)} for name in routers],
        "links": [link(info, forwards, notes) for _, _, info in topo.links(withInfo=True)],
        "notes": list(notes),
    }
