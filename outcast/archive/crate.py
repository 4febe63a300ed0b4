"""The metadata of an archive by RO-Crate 1.2, so that other programs than ours can tell what it is.

Source: RO-Crate Metadata Specification 1.2, https://w3id.org/ro/crate/1.2
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import quote

from rocrate.model.contextentity import ContextEntity
from rocrate.model.file import File
from rocrate.rocrate import ROCrate

from outcast.archive.contents import About, Described
from outcast.records.run_directory import Manifest

FILE = "ro-crate-metadata.json"
VERSION = "1.2"
NO_LICENSE = "No license was stated. Ask who made this archive before you use it."


def metadata(
    described: Mapping[str, Described],
    about: About,
    date: str,
    made_from: tuple[str, ...],
) -> bytes:
    """The file `ro-crate-metadata.json` of an archive. The same arguments give the same bytes.

    `date` is the day of the result, as 2026-11-22. `made_from` names the files that the run was
    made from; all others are its results.
    """
    crate = ROCrate(version=VERSION)
    # Older versions of the context do not have this name of schema.org.
    crate.metadata.extra_terms["sha256"] = "http://schema.org/sha256"
    root = crate.root_dataset
    root["name"], root["description"] = about.title, about.description
    root["datePublished"] = date
    root["license"] = NO_LICENSE
    if (url := about.license_url) is not None:
        terms = {"@type": "CreativeWork", "name": url, "url": url}
        root["license"] = crate.add(ContextEntity(crate, url, properties=terms))
    entities = {name: _file(crate, name, file) for name, file in sorted(described.items())}
    manifest = about.manifest
    program = _software(crate, "outcast", manifest.outcast)
    program["softwareRequirements"] = [
        _software(crate, name, version)
        for name, version in sorted({**manifest.versions, **_kernel(manifest)}.items())
    ]
    made = {
        "@type": "CreateAction",
        "name": about.action,
        "instrument": program,
        "object": [entities[name] for name in made_from if name in entities],
        "result": [entity for name, entity in entities.items() if name not in made_from],
    }
    root["mentions"] = crate.add(ContextEntity(crate, "#run", properties=made))
    return json.dumps(crate.metadata.generate(), indent=1, sort_keys=True).encode() + b"\n"


def _file(crate: ROCrate, name: str, file: Described) -> File:
    properties = {
        "name": name.rpartition("/")[2],
        "description": file.kind.is_what,
        "contentSize": str(file.bytes),
        "sha256": file.sha256,
    }
    if file.kind.media_type is not None:
        properties["encodingFormat"] = file.kind.media_type
    return crate.add(File(crate, dest_path=name, properties=properties))


def _software(crate: ROCrate, name: str, version: str) -> ContextEntity:
    properties = {"@type": "SoftwareApplication", "name": name, "softwareVersion": version}
    return crate.add(ContextEntity(crate, f"#software-{quote(name)}", properties=properties))


def _kernel(manifest: Manifest) -> dict[str, str]:
    release = manifest.kernel.get("release")
    return {} if release is None else {"Linux": str(release)}
