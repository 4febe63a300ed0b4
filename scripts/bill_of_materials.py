"""Prints the bill of materials of a release, as CycloneDX 1.6 in JSON.

    .venv/bin/python -m scripts.bill_of_materials >outcast.cdx.json

It is made from the locks alone: scripts/requirements*.lock for what a checkout installs, and
scripts/guest/lock.json for what the guest is made of. The same locks give the same bytes.

Sources: CycloneDX 1.6 (ECMA-424); Package URL, types `pypi` and `deb`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from outcast import __version__
from scripts.guest.root import LOCK

PROJECT = "outcast-testbed"
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;\\]+)")


def canonical(name: str) -> str:
    """A Python project's name as package URLs have it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: Path) -> dict[str, tuple[str, str]]:
    """The version and the lines of each project in a lock of pip's, by its canonical name."""
    blocks = re.split(r"\n(?=\S)", path.read_text(encoding="utf-8"))
    return {canonical(pin[1]): (pin[2], block) for block in blocks if (pin := _PIN.match(block))}


def bill() -> dict[str, Any]:
    """The bill as the document of CycloneDX, without a time and a serial number."""
    components = sorted(
        {part["purl"]: part for part in (*_of_python(), *_of_guest())}.values(),
        key=lambda part: str(part["purl"]),
    )
    project = {
        "type": "application",
        "bom-ref": f"pkg:pypi/{PROJECT}@{__version__}",
        "name": PROJECT,
        "version": __version__,
        "licenses": [{"license": {"id": "MIT"}}],
        "purl": f"pkg:pypi/{PROJECT}@{__version__}",
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": project},
        "components": components,
    }


def _of_python() -> Iterator[dict[str, Any]]:
    """What a checkout's virtual environment has. Their files' hashes are in the lock."""
    for path in sorted(Path(__file__).parent.glob("requirements*.lock")):
        for name, (version, _) in pins(path).items():
            yield _component(f"pkg:pypi/{name}@{quote(version)}", name, version)


def _of_guest() -> Iterator[dict[str, Any]]:
    """What the guest's roots are made of, and the source of its kernel."""
    for wheel in LOCK["wheels"]:
        name = canonical(wheel["name"])
        yield _with_hash(f"pkg:pypi/{name}@{quote(wheel['version'])}", name, wheel)
    for package in (*LOCK["runtime"], *LOCK["build"], LOCK["kernel_source"]):
        yield _with_hash(_of_debian(package), package["name"], package)


def _of_debian(package: Mapping[str, str]) -> str:
    version = quote(package["version"], safe="")
    return f"pkg:deb/debian/{package['name']}@{version}?arch={package['architecture']}"


def _with_hash(purl: str, name: str, pinned: Mapping[str, str]) -> dict[str, Any]:
    component = _component(purl, name, pinned["version"])
    return component | {"hashes": [{"alg": "SHA-256", "content": pinned["sha256"]}]}


def _component(purl: str, name: str, version: str) -> dict[str, Any]:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


if __name__ == "__main__":
    json.dump(bill(), sys.stdout, indent=1)
    print()
