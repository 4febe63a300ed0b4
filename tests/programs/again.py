"""Runs programs that nobody here wrote, many times under load: `again.py FOLDER [TIMES [NAME...]]`.

FOLDER is where `scripts/test-programs.sh` put the programs. Each of them makes the same transfer
over a lossy link TIMES times, while another process keeps every core busy. A run passes if its
client ends with the status 0. All captures of a program must be equal to the byte.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import outcast
from outcast.testing.networks import Networks

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "configs" / "examples"
BYTES = 300_000
URL = "http://{h1}/page"
PAGE = f"mkdir page; head -c {BYTES} /dev/zero > page/page; exec nginx -p . -e stderr -c nginx.conf"
NGINX: dict[str, Any] = {
    "command": ["sh", "-c", PAGE],
    "files": [EXAMPLES / "nginx.conf"],
    "ready": {"port": 80},
}
_PASSED = "captures "
HOST_ROOT = {"guest": {"root": "host"}}


def networks(folder: Path) -> dict[str, dict[str, Any]]:
    """The keys of each program's configuration."""
    python = str(folder / "aioquic" / "bin" / "python")
    go, rust = folder / "quic-go", folder / "quinn"
    return {
        "quic-go": _served(
            {"command": ["./quic-go", "serve"], "files": [go], "ready": {"port": 4433}},
            {"command": ["./quic-go", "get", "{h1}", BYTES], "files": [go]},
        ),
        "quinn": _served(
            {"command": ["./quinn", "serve"], "files": [rust], "ready": {"port": 4433}},
            {"command": ["./quinn", "get", "{h1}", BYTES], "files": [rust]},
            libraries=True,
        ),
        "aioquic": HOST_ROOT
        | _served(
            {
                "command": [python, "quic-server.py"],
                "files": [EXAMPLES / "quic-server.py"],
                "ready": {"port": 4433},
            },
            {
                "command": [python, "quic-client.py", "{h1}", BYTES],
                "files": [EXAMPLES / "quic-client.py"],
            },
        ),
        "java": HOST_ROOT
        | _served(NGINX, {"command": ["java", "Get", URL], "files": [folder / "Get.class"]}),
        "node": HOST_ROOT
        | _served(NGINX, {"command": ["node", "get.mjs", URL], "files": [HERE / "node/get.mjs"]}),
        "iperf3": _served(
            {"command": ["iperf3", "-s"], "ready": {"port": 5201}},
            {"command": ["iperf3", "-c", "{h1}", "-n", str(BYTES)]},
        ),
        "nginx-curl": _served(NGINX, {"command": ["curl", "-fsSo", "/dev/null", URL]}),
    }


def _served(server: dict[str, Any], client: dict[str, Any], **both: Any) -> dict[str, Any]:
    return {
        "topology": {"kind": "linear", "rivals": 1},
        "links": {
            "rate": "100mbit",
            "delay": "5ms",
            "overrides": [{"from": "s1", "to": "s2", "rate": "10mbit", "loss": 0.01}],
        },
        "queue": {"kind": "tbf", "limit": "64KB"},
        "duration": "10s",
        "engine": "virtual",
        "programs": [
            {"name": "server", "host": "h1"} | server | both,
            {"name": "client", "host": "h3"} | client | both,
        ],
    }


def main() -> int:
    """Runs what the command line asks for; 1 if a run fails or differs."""
    folder = Path(sys.argv[1]).resolve()
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    asked = networks(folder)
    failed = 0
    for _ in os.sched_getaffinity(0):
        multiprocessing.Process(target=_spin, args=(os.getpid(),), daemon=True).start()
    for name in sys.argv[3:] or asked:
        begin = time.monotonic()
        outcomes = Counter(_once(name, asked[name]) for _ in range(times))
        passed = [count for what, count in outcomes.items() if what.startswith(_PASSED)]
        same = max(passed, default=0)
        each_s = (time.monotonic() - begin) / times
        print(f"{name}: {same} of {times} pass and are equal, {each_s:.1f} s each")
        for what, count in outcomes.most_common():
            print(f"  {count} times: {what}", flush=True)
        failed += times - same
    return int(failed > 0)


def _once(name: str, keys: dict[str, Any]) -> str:
    """Makes a run. Returns a hash of its captures, or why it failed."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = Networks(Path(folder), Path(__file__), seed=1).run(name=name, **keys)
        except outcast.OutcastError as error:
            return str(error)
        client = run.program("client")
        if client.status != 0 or not run.trusted:
            return f"status {client.status}, {run.reasons}: {client.errors}"
        found = hashlib.sha256()
        for path in sorted((run.path / "captures").iterdir()):
            found.update(path.name.encode() + path.read_bytes())
        return f"{_PASSED}{found.hexdigest()[:16]}; {client.output.strip().splitlines()[-1:]}"


def _spin(parent: int) -> None:
    os.nice(10)
    while os.getppid() == parent:
        pass


if __name__ == "__main__":
    sys.exit(main())
