"""The only place where the OpenFlow framework is imported: Ryu, or os-ken where Ryu cannot run.

os-ken is the maintained fork of Ryu and has the same modules under another name. The environment
variable OUTCAST_OPENFLOW (`ryu` or `os_ken`) forces one of them.

Ryu 4.34 is older than the Python and the eventlet that it runs on, so it needs
`_make_ryu_importable`. Its own `ryu-manager` does not call that; this project installs `manager`
below in its place.
"""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module, util
from typing import Any

FRAMEWORKS = ("ryu", "os_ken")
FORCE_VARIABLE = "OUTCAST_OPENFLOW"


def _import_framework(name: str) -> Any:
    # Without this, eventlet imports dnspython, which is unused here and takes longer than eventlet.
    os.environ.setdefault("EVENTLET_NO_GREENDNS", "yes")
    # os-ken's own threads never end for a switch that is gone, so its loss would go unreported.
    os.environ.setdefault("OSKEN_HUB_TYPE", "eventlet")
    with warnings.catch_warnings():
        # eventlet warns about itself, and Ryu's imports warn too.
        warnings.simplefilter("ignore")
        if name == "ryu" and util.find_spec(name) is not None:
            _make_ryu_importable()
        return import_module(f"{name}.base.app_manager")


def _make_ryu_importable() -> None:
    if sys.version_info < (3, 12):
        # Ryu imports distutils. The standard library's, where it exists, imports faster than the
        # stand-in that setuptools puts before it.
        hack = sys.modules.get("_distutils_hack")
        if hack is not None:
            hack.remove_shim()
    wsgi = import_module("eventlet.wsgi")
    # eventlet 0.30.3 removed it; only Ryu's websockets compare with it.
    if not hasattr(wsgi, "ALREADY_HANDLED"):
        vars(wsgi)["ALREADY_HANDLED"] = object()


def _choose() -> tuple[str, Any]:
    forced = os.environ.get(FORCE_VARIABLE)
    if forced:
        if forced not in FRAMEWORKS:
            raise ImportError(f"{FORCE_VARIABLE}={forced}: allowed are {', '.join(FRAMEWORKS)}")
        return forced, _import_framework(forced)
    reasons = []
    for name in FRAMEWORKS:
        try:
            return name, _import_framework(name)
        # An old Ryu on a new Python or eventlet can also raise AttributeError.
        except (ImportError, AttributeError) as error:
            reasons.append(f"{name}: {error}")
    raise ImportError(f"no OpenFlow framework can be imported ({'; '.join(reasons)})")


framework, app_manager = _choose()
"""The name of the framework's package, and its `base.app_manager`."""

cfg: Any = import_module(f"{framework}.cfg")
controller: Any = import_module(f"{framework}.controller.controller")
handler: Any = import_module(f"{framework}.controller.handler")
ofp_event: Any = import_module(f"{framework}.controller.ofp_event")
versions: tuple[Any, ...] = tuple(
    import_module(f"{framework}.ofproto.ofproto_v1_{minor}") for minor in (3, 5)
)
"""The protocol versions that the controller speaks, the lowest first."""

HAS_GROUP_PROPERTIES = 0x06
"""OpenFlow 1.5's number on the wire. From this version on a group can say how it chooses."""

App: Any = app_manager.RyuApp if framework == "ryu" else app_manager.OSKenApp


def manager() -> None:
    """Runs the named applications as `ryu-manager` does, on the framework that is there."""
    if framework == "ryu":
        import_module("ryu.cmd.manager").main()
    else:
        cfg.CONF(args=[], project=framework, default_config_files=[])
        app_manager.AppManager.run_apps(sys.argv[1:])
