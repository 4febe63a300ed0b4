"""From an experiment that names a user's file to one that carries the network.

A user's Python file is code. It is run here and nowhere else, and only where a configuration is
read to be run: `outcast run`, `sweep` and `topo`, `outcast.load` and `outcast.run_sweep`. What
reads results loads their configurations without coming by here. Nothing is run from a result's own
folder, because that may come from somebody else.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from outcast import handed_in
from outcast.errors import ConfigError, InputError
from outcast.experiment import (
    Experiment,
    FromFile,
    FromGraph,
    Network,
    NetworkError,
    Origin,
    OwnTopology,
    Source,
)
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

    Relative paths are relative to the folder of the source.

    Raises ConfigError: it is no valid experiment; or the file of its network, and what is wrong.
    """
    experiment = source.experiment()
    topology = experiment.topology
    if not isinstance(topology, OwnTopology):
        return experiment
    if topology.network is not None and topology.network.of == topology.requested():
        return experiment
    if source.files_from is None or is_of_result(Path(source.file)):
        built = topology.built(_known(topology, source), None)
    else:
        built = topology.built(*_made(topology, source, source.files_from))
    return experiment.model_copy(update={"topology": built})


def _known(topology: OwnTopology, source: Source) -> Network:
    """The network that a sweep's folder keeps of a topology."""
    kept = read_kept(source.files_from) if source.files_from is not None else []
    known = among(kept, topology)
    if known is None:
        raise ConfigError(
            source.refusal(
                ("topology", "path"),
                f"{topology.path}: the network that it makes is not in this result, and files that "
                "a result names are not read; allowed is the configuration that it was made from",
            )
        )
    return known


def _made(topology: OwnTopology, source: Source, folder: Path) -> tuple[Network, Origin]:
    """The network of a user's file."""
    refusal = functools.partial(source.refusal, ("topology", "path"))
    path = folder / topology.path
    most_bytes = MOST_CODE_BYTES if isinstance(topology, FromFile) else graph_file.MOST_BYTES
    try:
        content = handed_in.read_bytes(path, most_bytes)
    except FileNotFoundError:
        raise ConfigError(refusal(f"{path}: there is no such file")) from None
    except InputError as error:
        raise ConfigError(refusal(str(error))) from None
    try:
        if isinstance(topology, FromGraph):
            parts = graph_file.read(content, path.name, topology.hosts_per_switch)
        else:
            # It imports Mininet, which graphs do not need.
            from outcast.networks import topo_file

            assert isinstance(topology, FromFile)
            parts = topo_file.read(path, content, topology.topo, topology.args)
        network = assemble.network(topology.requested(), parts)
    except NetworkError as error:
        line = f"{path}: {_line(str(error))}"
        raise ConfigError(refusal(line) if source.point else line) from None
    except ConfigError as error:
        raise ConfigError(refusal(str(error)) if source.point else str(error)) from None
    return network, Origin(folder.absolute(), path.name, content)


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
    requested = topology.requested()
    return next((network for network in kept if network.of == requested), None)


def is_of_result(config: Path) -> bool:
    """Whether a configuration is the one in the folder of a run, a failed run or a sweep."""
    beside = _BESIDE.get(config.name, ())
    return any(os.path.lexists(config.parent / name) for name in beside)


def _line(text: str) -> str:
    """A text with names from a stranger's file, as a line without long words and controls."""
    words = (word if len(word) <= 60 else f"{word[:57]}..." for word in text.split())
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in " ".join(words)
    )
