"""Starts the static routes application: `python -m controllers --graph FILE [--port N] ...`.

Standard output has the application's report (controllers/static_routes.py). Before it comes the
event `listening` with `address`, `port` and `framework`, once switches can connect. The program
runs until SIGTERM or SIGINT, which end it with status 0. Status 1 means that it cannot listen
there. Status 2 means bad usage, or a graph that cannot be read or routed. Both write one line to
standard error.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from controllers import slim

# All that is imported stays. A tenth of the time would go to looking for garbage in it.
gc.disable()
slim.slim(*slim.GRAPHS)
slim.later(*slim.OPENFLOW)

from controllers import openflow, routes, static_routes  # noqa: E402
from controllers.graph import GraphError  # noqa: E402


def _fail(status: int, message: str) -> NoReturn:
    sys.stdout.flush()
    print(f"controllers: error: {message}", file=sys.stderr, flush=True)
    # The listener's thread or greenlet calls this too, and sys.exit would end only that.
    os._exit(status)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="controllers", description="Installs static routes.")
    parser.add_argument("--graph", type=Path, required=True, help="file; see controllers/graph.py")
    parser.add_argument("--routing", choices=tuple(routes.KINDS), default="shortest")
    parser.add_argument("--hash-seed", type=int, default=0, help="seed of hashed choices")
    parser.add_argument("--listen", default="127.0.0.1", help="IPv4 address to listen on")
    parser.add_argument("--port", type=int, default=6653)
    arguments = parser.parse_args()
    if not 1 <= arguments.port <= 65535:
        parser.error(f"argument --port: {arguments.port}; 1 to 65535 is allowed")
    if not 0 <= arguments.hash_seed < 2**32:
        parser.error(f"argument --hash-seed: {arguments.hash_seed}; 0 to 2^32 - 1 is allowed")
    return arguments


class _Listener(openflow.controller.StreamServer):
    """The framework's server, which also reports that it listens, or ends the program."""

    def __init__(self, address: tuple[str, int], *args: Any, **kwargs: Any) -> None:
        host, port = address
        try:
            # eventlet sets SO_REUSEPORT. A second controller would therefore share the port and
            # get some of the switches. This socket lacks that option, so a port in use is refused.
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                probe.listen()
            super().__init__(address, *args, **kwargs)
        except OSError as error:
            _fail(1, f"cannot listen on {host} port {port}: {error.strerror or error}")
        static_routes.emit("listening", address=host, port=port, framework=openflow.framework)


def main() -> None:
    """Runs the controller until a signal ends it."""
    gc.freeze()
    gc.enable()
    arguments = _parse_arguments()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    logging.basicConfig(level=logging.WARNING, format="controllers: %(levelname)s: %(message)s")
    os.environ[static_routes.GRAPH_VARIABLE] = str(arguments.graph)
    os.environ[static_routes.ROUTING_VARIABLE] = arguments.routing
    os.environ[static_routes.HASH_SEED_VARIABLE] = str(arguments.hash_seed)
    options = openflow.cfg.CONF
    options(args=[], project=openflow.framework, default_config_files=[], default_config_dirs=[])
    options.set_override("ofp_listen_host", arguments.listen)
    options.set_override("ofp_tcp_listen_port", arguments.port)
    openflow.controller.StreamServer = _Listener
    try:
        openflow.app_manager.AppManager.run_apps([static_routes.__name__])
    except (GraphError, routes.RouteError) as error:
        _fail(2, str(error))


if __name__ == "__main__":
    main()
