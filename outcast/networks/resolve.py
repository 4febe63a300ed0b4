"""From an experiment that names a user's file to one that carries the network.

A user's Python file is code. It is run here and nowhere else, and only where a configuration is
read to be run: `outcast run`, `sweep` and `topo`, `outcast.load` and `outcast.run_sweep`. What
reads results loads their configurations without coming by here. Nothing is run from a result's own
folder, because that may come from somebody else.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from outcast import handed_in
from outcast.errors import ConfigError, InputError
from outcast.experiment import (
    Experiment,
    FromFile,
    FromGraph,
    Network,
    NetworkError,
    NetworkLink,
    Origin,
    OwnKeys,
    OwnTopology,
    Source,
)
from outcast.experiment.network import segments
from outcast.networks import assemble, graph_file

KEPT = "networks.json"
"""The file of a sweep's folder that has the networks of its points."""
MOST_CODE_BYTES = 1 << 20
_BESIDE = {
    "config.yaml": ("plan.json", "manifest.json"),
    "sweep.yaml": ("runs", "networks.json", ".lock"),
}
"""Files that stand beside the configuration of a run and of a sweep."""


def experiment_of(source: Source) -> Experiment:
    """The experiment of a configuration that is read to be run, with its network.

    Raises:
        ConfigError: it is no valid experiment, or its network cannot be had.
    """
    return with_network(source.experiment(), source)


def with_network(experiment: Experiment, source: Source) -> Experiment:
    """The experiment with its network, if it names a file and has no network of that yet.

    Relative paths are relative to the folder of the source.

    Raises ConfigError: in one line, the file, and what is wrong with it.
    """
    topology = experiment.topology
    if not isinstance(topology, OwnTopology):
        return experiment
    if topology.network is not None and topology.network.of == topology.asked():
        return experiment
    refusal = functools.partial(source.refusal, ("topology", "path"))
    is_result = source.files_from is None or is_of_result(Path(source.file))
    if is_result and source.files_from is not None:
        known = among(read_kept(source.files_from), topology)
        if known is not None:
            return experiment.model_copy(update={"topology": topology.built(known, None)})
    if is_result or source.files_from is None:
        raise ConfigError(
            refusal(
                f"{topology.path}: the network that it makes is not in this result, and files that "
                "a result names are not read; allowed is the configuration that it was made from"
            )
        )
    path = source.files_from / topology.path
    try:
        content = _read(path, topology)
    except InputError as error:
        raise ConfigError(refusal(str(error))) from None
    try:
        network = _network(topology, path, content)
    except ConfigError as error:
        raise ConfigError(refusal(str(error)) if source.point else str(error)) from None
    origin = Origin(source.files_from.absolute(), path.name, content)
    return experiment.model_copy(update={"topology": topology.built(network, origin)})


def read_kept(folder: Path) -> list[Network]:
    """The networks that a sweep's folder keeps. Raises InputError where they cannot be read."""
    file = folder / KEPT
    try:
        tree = handed_in.read_json(file)
        return TypeAdapter(list[Network]).validate_python(tree)
    except FileNotFoundError:
        return []
    except ValidationError as error:
        raise InputError(f"{file}: {handed_in.first_problem(error)}") from None


def among(kept: Iterable[Network], topology: OwnTopology) -> Network | None:
    """The network of this topology, if it is one of these."""
    requested = topology.asked()
    return next((network for network in kept if network.of == requested), None)


def is_of_result(config: Path) -> bool:
    """Whether a configuration is the one in the folder of a run, a failed run or a sweep."""
    beside = _BESIDE.get(config.name, ())
    return any(os.path.lexists(config.parent / name) for name in beside)


def _read(path: Path, topology: OwnTopology) -> bytes:
    """Raises InputError, which begins with the file."""
    most = MOST_CODE_BYTES if isinstance(topology, FromFile) else graph_file.MOST_BYTES
    try:
        return handed_in.read_bytes(path, most)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None


def _network(topology: OwnTopology, path: Path, content: bytes) -> Network:
    """Raises ConfigError, which begins with the file."""
    try:
        if isinstance(topology, FromGraph):
            parts = graph_file.read(content, path.name, topology.hosts_per_switch)
        else:
            # It imports Mininet, which graphs do not need.
            from outcast.networks import topo_file

            assert isinstance(topology, FromFile)
            parts = topo_file.read(path, content, topology.topo, topology.args)
        return network_of_parts(topology, parts)
    except NetworkError as error:
        raise ConfigError(f"{path}: {_line(str(error))}") from None


def _line(text: str) -> str:
    """A text with names from a stranger's file, as a line without long words and controls."""
    words = (word if len(word) <= 60 else f"{word[:57]}..." for word in text.split())
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in " ".join(words)
    )


def network_of_parts(topology: OwnTopology, parts: Mapping[str, Any]) -> Network:
    """The network of hosts, switches, links and notes that a file gave.

    Raises:
        NetworkError: it cannot be built.
    """
    for link in parts["links"]:
        for words in link.get("own", {}).values():
            assemble.validated(_between(link), OwnKeys, words)
    links = [assemble.validated(_between(link), NetworkLink, link) for link in parts["links"]]
    routers = sorted(parts["routers"], key=lambda router: assemble.natural(router["name"]))
    names = {router["name"] for router in routers}
    pairs = [(first.node, second.node) for first, second in (link.places for link in links)]
    network: Network = assemble.validated(
        "",
        Network,
        {
            "of": topology.asked(),
            "hosts": assemble.hosts(parts["hosts"], segments(pairs, names) if names else ()),
            "switches": assemble.switches(parts["switches"]),
            "links": links,
            "notes": parts["notes"][:20],
            "routers": routers,
        },
    )
    return network


def _between(link: Mapping[str, Any]) -> str:
    return " - ".join(str(end).rpartition("-eth")[0] for end in link["ends"])
