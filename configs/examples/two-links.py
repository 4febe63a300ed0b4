"""A phone with two links, over a switch of its own each, to one server."""

from __future__ import annotations

from mininet.topo import Topo


class TwoLinks(Topo):
    """`cell` is a further interface of the phone, with an address of its own."""

    def build(self) -> None:
        server_side = self.addSwitch("s3")
        self.addLink(self.addHost("server", role="receiver"), server_side)
        for number, (name, options) in enumerate((("phone", {}), ("cell", {"of": "phone"})), 1):
            near = self.addSwitch(f"s{number}")
            self.addLink(self.addHost(name, **options), near)
            self.addLink(near, server_side)


topos = {"two-links": TwoLinks}
