"""Nodes, interfaces and links with Mininet's names, and without Mininet's programs."""

from __future__ import annotations

import os
from typing import Any

from mininet.link import Intf, Link
from mininet.node import Host, OVSSwitch

from outcast.emulation.commands import new_namespace


class NamespaceHost(Host):
    """A Mininet host without a shell of its own: a namespace."""

    netns: int

    def startShell(self, mnopts: str | None = None) -> None:  # Mininet's name
        """Makes the namespace, and no shell."""
        self.netns = new_namespace()

    def addIntf(self, intf: Intf, port: int | None = None, moveIntfFn: Any = None) -> None:
        """Notes the interface, and moves none, because veth pairs are made where they belong."""
        super().addIntf(intf, port=port, moveIntfFn=lambda *_: None)

    def config(self, **_params: Any) -> dict[str, Any]:
        """Does nothing; see hosts.py."""
        return {}

    def terminate(self) -> None:
        """Closes the namespace, and with it its interfaces."""
        os.close(self.netns)


class PortSwitch(OVSSwitch):
    """A Mininet Open vSwitch switch without a shell; see openvswitch.py."""

    isSetup = True  # Mininet would ask a running Open vSwitch for its version here.

    def startShell(self, mnopts: str | None = None) -> None:
        """Does nothing, because switches are in the network's own namespace."""

    def cmd(self, *_args: Any, **_kwargs: Any) -> str:
        """Does nothing, because the network does in bulk what Mininet would run here."""
        return ""

    def config(self, **_params: Any) -> dict[str, Any]:
        """Does nothing, because a switch has only its ports to configure."""
        return {}


class PlainIntf(Intf):
    """An interface that has only a name here; the kernel's part is done in bulk."""

    def config(self, **_params: Any) -> dict[str, Any]:
        """Does nothing."""
        return {}


class PlainLink(Link):
    """A link that is only noted; `Network.create_links` makes the veth pairs."""

    @classmethod
    def makeIntfPair(cls, *_args: Any, **_kwargs: Any) -> None:
        """Does nothing."""
