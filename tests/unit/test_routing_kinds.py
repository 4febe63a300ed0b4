"""A kind of routing is one class, registered once. What the class says, its routes do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args, get_origin

import pytest

from controllers import routes
from outcast.emulation import forwarding
from outcast.errors import FeatureMissingError
from outcast.experiment import Experiment, load
from outcast.experiment.routing import KINDS, RoutingKind
from outcast.plan import paths
from outcast.plan.topology import make_graph, make_topo

FAT_TREE = Path(__file__).parents[2] / "configs" / "fig3c.yaml"


def experiments() -> Iterator[Experiment]:
    """A fat-tree with each kind of routing, and with each value of its keys."""
    for kind in KINDS:
        (name,) = get_args(kind.model_fields["kind"].annotation)
        yield load(FAT_TREE, [f"routing={{kind: {name}}}"])
        for key, field in kind.model_fields.items():
            is_word = get_origin(field.annotation) is Literal and key != "kind"
            for word in get_args(field.annotation) if is_word else ():
                yield load(FAT_TREE, [f"routing={{kind: {name}, {key}: {word}}}"])


def named(value: object) -> str:
    return "-".join(map(str, value.routing.model_dump().values()))  # type: ignore[attr-defined]


@pytest.mark.parametrize("experiment", list(experiments()), ids=named)
def test_a_kind_says_what_its_switches_need(experiment: Experiment) -> None:
    routing = experiment.routing
    table = paths.compute_routes(experiment, make_graph(make_topo(experiment)))
    assert table.kind == routing.routes_kind
    assert table.hash_seed == routing.hash_seed_of(experiment.seed)
    assert routing.by_address_alone == (not table.choices and not table.depends_on_input)
    if routing.by_address_alone:
        forwarding.require(routing)
    else:
        with pytest.raises(FeatureMissingError, match=f"{routing.kind}: .*--engine virtual"):
            forwarding.require(routing)


def test_every_kind_of_routes_is_asked_for_by_some_routing() -> None:
    assert {experiment.routing.routes_kind for experiment in experiments()} == set(routes.KINDS)


def test_a_kind_that_does_not_say_what_its_switches_need_is_refused_when_it_is_defined() -> None:
    parts: dict[str, Any] = {"__annotations__": {"kind": Literal["mine"]}}
    with pytest.raises(TypeError, match="routing kind Mine: no by_address_alone"):
        type("Mine", (RoutingKind,), parts)
    whole = {"__annotations__": {**parts["__annotations__"], "by_address_alone": ClassVar[bool]}}
    assert type("Mine", (RoutingKind,), {**whole, "by_address_alone": True})
