"""What is asked for in each direction of each link.

The settings come from four places, of which the later wins: `links`, `links.layers`, the edge's own
settings in the topology, and `links.overrides`.

An edge of the graph has its own settings in `own`: by sending node, the keys of
`experiment.links.LinkKeys` as a configuration has them, for example
`{"s1": {"rate": "100mbit"}, "s2": {}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import ValidationError

from controllers.graph import Graph
from outcast.errors import ConfigError
from outcast.experiment import Experiment, Link, LinkKeys

Direction = tuple[str, str]
"""A direction of a link: the sending node, and its neighbour."""


def resolve(experiment: Experiment, graph: Graph) -> Mapping[Direction, Link]:
    """The settings of both directions of every link, in the order of the graph's links.

    Raises:
        ConfigError: an edge's own settings are no settings of a link, or do not fit one another.
    """
    settings: dict[Direction, Link] = {}
    for one, other, data in graph.edges(data=True):
        of_layers = experiment.links.between(data["layers"])
        for node, neighbour in ((one, other), (other, one)):
            own = data.get("own", {}).get(node)
            settings[node, neighbour] = (
                of_layers if own is None else _with_own(of_layers, own, f"{node} to {neighbour}")
            )
    return settings


def _with_own(base: Link, words: Mapping[str, object], where: str) -> Link:
    try:
        return merged(base, LinkKeys.model_validate(words))
    except ValidationError as error:
        first = error.errors()[0]
        keys = ".".join(str(key) for key in first["loc"])
        raise ConfigError(f"topology: link {where}: {keys}: {first['msg']}") from None
    except ValueError as error:
        raise ConfigError(f"topology: link {where}: {error}") from None


def merged(base: Link, own: LinkKeys) -> Link:
    """A direction's settings, with a link's own keys in the place of those that they change.

    A jitter that is not the link's own is that of the base. Where the base has the greatest jitter
    that it can have, the link gets the greatest that it can have itself.

    Raises:
        ValueError: the settings do not fit one another.
    """
    link = replace(
        base,
        rate_bps=base.rate_bps if own.rate_bps is None else own.rate_bps,
        delay_ns=base.delay_ns if own.delay_ns is None else own.delay_ns,
    )
    if own.jitter_ns is not None:
        link = replace(link, jitter_ns=own.jitter_ns)
    elif base.jitter_ns:
        greatest_ns = link.greatest_jitter_ns()
        is_greatest = base.jitter_ns == base.greatest_jitter_ns()
        link = replace(
            link, jitter_ns=greatest_ns if is_greatest else min(base.jitter_ns, greatest_ns)
        )
    link.check()
    return link
