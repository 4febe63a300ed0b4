"""The messages of the controller: copies of one form are what the framework itself writes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from controllers import entries, openflow, routes, static_routes
from outcast.plan.addresses import add_ipv6
from tests.unit.test_routes import fat_tree


class Datapath:
    """What a message needs of a connection: the version, its parser and the next xid."""

    def __init__(self, version: Any) -> None:
        self.ofproto = version
        self.ofproto_parser = import_module(f"{version.__name__}_parser")

    def set_xid(self, message: Any) -> None:
        message.set_xid(1)


@pytest.mark.parametrize("version", openflow.versions, ids=lambda version: version.__name__[-4:])
@pytest.mark.parametrize("kind", routes.KINDS)
@pytest.mark.parametrize("has_ipv6", [False, True])
def test_flow_mods_are_as_the_framework_writes_them(
    version: Any, kind: str, has_ipv6: bool
) -> None:
    graph = fat_tree(4)
    if has_ipv6:
        add_ipv6(graph)
    datapath = Datapath(version)
    computed = routes.compute(graph, kind, 3)
    for switch, planned in entries.planned(graph, computed).items():
        one_by_one = []
        for entry in planned:
            message = static_routes._flow_mod(datapath, entry)
            message.set_xid(1)
            message.serialize()
            one_by_one.append(bytes(message.buf))
        assert list(static_routes.flow_mods(datapath, planned)) == one_by_one, switch
        assert len(set(one_by_one)) == len(planned)
