"""An OpenFlow application that installs static routes before any packet needs them.

It reads the graph (controllers/graph.py) from the file that the environment variable
OUTCAST_GRAPH names. It computes the routes of the kind that OUTCAST_ROUTING names (`shortest`
unless set), with the hash seed in OUTCAST_HASH_SEED (0 unless set). When a switch of the graph
connects, the application deletes all its entries and groups, installs its own
(controllers/entries.py), and sends a barrier. Switches that are not in the graph are left alone.

It speaks OpenFlow 1.3 and 1.5. Groups need 1.5, because only there they can say how to choose. If
the routes have groups, a switch that has only 1.3 is refused.

To run it alone: `OUTCAST_GRAPH=graph.json ryu-manager controllers/static_routes.py`, with the
ryu-manager of this project's virtual environment. The engine starts it as `python -m controllers`.

It reports on standard output, with one JSON object a line. `event` is one of:

- `connected`: `switch` (name), `dpid`; its entries are being sent;
- `installed`: `switch`; it has answered the barrier;
- `ready`: `switches` and `entries` (counts), `routing`; every switch of the graph has answered,
  without an error;
- `disconnected`: `switch`;
- `error`: `switch` (null if unknown), `dpid` and `message`.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from controllers import entries, openflow, routes, selection
from controllers.graph import GraphError, load
from controllers.openflow import handler, ofp_event

GRAPH_VARIABLE = "OUTCAST_GRAPH"
ROUTING_VARIABLE = "OUTCAST_ROUTING"
HASH_SEED_VARIABLE = "OUTCAST_HASH_SEED"


def emit(event: str, **details: object) -> None:
    """Writes one line of the report."""
    print(json.dumps({"event": event, **details}), flush=True)


class StaticRoutes(openflow.App):
    """The application that the module describes."""

    OFP_VERSIONS = tuple(version.OFP_VERSION for version in openflow.versions)

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Reads the graph and computes the routes.

        Raises:
            GraphError: the graph cannot be read.
            RouteError: it cannot be routed.
        """
        super().__init__(*args, **kwargs)
        if not os.environ.get(GRAPH_VARIABLE):
            raise GraphError(f"{GRAPH_VARIABLE} is not set; it names the graph's file")
        graph = load(Path(os.environ[GRAPH_VARIABLE]))
        self._routing = os.environ.get(ROUTING_VARIABLE) or "shortest"
        hash_seed = int(os.environ.get(HASH_SEED_VARIABLE) or 0)
        computed = routes.compute(graph, self._routing, hash_seed)
        self._planned = entries.planned(graph, computed)
        self._groups = entries.planned_groups(graph, computed)
        self._names = {graph.nodes[switch]["dpid"]: switch for switch in self._planned}
        self._barriers: dict[str, tuple[Any, int]] = {}
        self._installed: set[str] = set()

    @handler.set_ev_cls(ofp_event.EventOFPSwitchFeatures, handler.CONFIG_DISPATCHER)
    def install(self, ev: Any) -> None:
        """Sends a switch its entries and a barrier after them, in one write."""
        datapath = ev.msg.datapath
        switch = self._names.get(datapath.id)
        if switch is None:
            emit("error", switch=None, dpid=datapath.id, message="the switch is not in the graph")
            return
        emit("connected", switch=switch, dpid=datapath.id)
        groups = sorted(self._groups[switch], key=lambda group: group.number)
        if groups and datapath.ofproto.OFP_VERSION < openflow.HAS_GROUP_PROPERTIES:
            message = "its routes need OpenFlow 1.5; see protocols in ovs-vsctl(8)"
            emit("error", switch=switch, dpid=datapath.id, message=message)
            return
        barrier = datapath.ofproto_parser.OFPBarrierRequest(datapath)
        messages = [
            _deletion(datapath),
            _group_deletion(datapath),
            *(selection.group_mod(datapath, group) for group in groups),
        ]
        written = [_written(datapath, message) for message in messages]
        written += flow_mods(datapath, self._planned[switch])
        written.append(_written(datapath, barrier))
        self._installed.discard(switch)
        self._barriers[switch] = (datapath, barrier.xid)
        datapath.send(b"".join(written))

    @handler.set_ev_cls(
        ofp_event.EventOFPBarrierReply, [handler.CONFIG_DISPATCHER, handler.MAIN_DISPATCHER]
    )
    def confirm(self, ev: Any) -> None:
        """Counts the switch as done if the reply is to its latest barrier."""
        datapath = ev.msg.datapath
        switch = self._names.get(datapath.id)
        if switch is None or self._barriers.get(switch) != (datapath, ev.msg.xid):
            return
        emit("installed", switch=switch)
        self._installed.add(switch)
        if len(self._installed) == len(self._planned):
            emit(
                "ready",
                switches=len(self._planned),
                entries=sum(map(len, self._planned.values())),
                routing=self._routing,
            )

    @handler.set_ev_cls(
        ofp_event.EventOFPErrorMsg,
        [handler.HANDSHAKE_DISPATCHER, handler.CONFIG_DISPATCHER, handler.MAIN_DISPATCHER],
    )
    def report_error(self, ev: Any) -> None:
        """Reports what a switch refused. That switch can no longer become ready."""
        datapath, ofproto = ev.msg.datapath, ev.msg.datapath.ofproto
        switch = self._names.get(datapath.id)
        if switch is not None:
            self._barriers.pop(switch, None)
        kind = ofproto.ofp_error_type_to_str(ev.msg.type)
        code = ofproto.ofp_error_code_to_str(ev.msg.type, ev.msg.code)
        emit("error", switch=switch, dpid=datapath.id, message=f"{kind}, {code}")

    @handler.set_ev_cls(ofp_event.EventOFPStateChange, handler.DEAD_DISPATCHER)
    def report_loss(self, ev: Any) -> None:
        """Reports a lost switch, unless it has already come back on another connection."""
        switch = self._names.get(ev.datapath.id)
        if switch is None:
            return
        latest, _ = self._barriers.get(switch, (ev.datapath, 0))
        if latest is ev.datapath:
            self._barriers.pop(switch, None)
            self._installed.discard(switch)
            emit("disconnected", switch=switch)


def _deletion(datapath: Any) -> Any:
    ofproto = datapath.ofproto
    return datapath.ofproto_parser.OFPFlowMod(
        datapath,
        table_id=ofproto.OFPTT_ALL,
        command=ofproto.OFPFC_DELETE,
        out_port=ofproto.OFPP_ANY,
        out_group=ofproto.OFPG_ANY,
    )


def _group_deletion(datapath: Any) -> Any:
    ofproto = datapath.ofproto
    return datapath.ofproto_parser.OFPGroupMod(
        datapath, command=ofproto.OFPGC_DELETE, group_id=ofproto.OFPG_ALL
    )


_DESTINATION_FIELDS = {"ip": "ipv4_dst", "arp": "arp_tpa", "ipv6": "ipv6_dst"}
_DESTINATION_MARK = "203.0.113.254"
_DESTINATION_MARK_IPV6 = "2001:db8::7e57:1"
_TARGET_MARK = 0x7E577E57
"""Stands for the port or the group; a group's number has the same 4 bytes."""


def flow_mods(datapath: Any, planned: Iterable[entries.Entry]) -> Iterator[bytes]:
    """The messages that install these entries, as the framework writes them.

    The framework is slow, and a fat-tree of 16 pods has 655,680 of them. Most differ by destination
    and port (or group) alone. So it writes one of each form, with marks in these two fields, and
    the others are copies with the marks replaced. They have the xid of the first one, which
    distinguishes nothing here.
    """
    forms: dict[tuple[object, ...], tuple[bytes, int, int]] = {}
    for entry in planned:
        target = entry.output if entry.group is None else entry.group
        if entry.destination is None or target is None:
            yield _written(datapath, _flow_mod(datapath, entry))
            continue
        kind = (entry.priority, entry.protocol, entry.in_port, entry.group is None)
        if kind not in forms:
            mark = _DESTINATION_MARK_IPV6 if ":" in entry.destination else _DESTINATION_MARK
            marked = replace(entry, destination=mark)
            if entry.group is None:
                marked = replace(marked, output=_TARGET_MARK)
            else:
                marked = replace(marked, group=_TARGET_MARK)
            content = _written(datapath, _flow_mod(datapath, marked))
            at_destination = content.index(_packed(mark))
            forms[kind] = content, at_destination, content.index(_TARGET_MARK.to_bytes(4, "big"))
        content, at_destination, at_target = forms[kind]
        message = bytearray(content)
        destination = _packed(entry.destination)
        message[at_destination : at_destination + len(destination)] = destination
        message[at_target : at_target + 4] = target.to_bytes(4, "big")
        yield bytes(message)


def _packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def _written(datapath: Any, message: Any) -> bytes:
    datapath.set_xid(message)
    message.serialize()
    return bytes(message.buf)


def _flow_mod(datapath: Any, entry: entries.Entry) -> Any:
    ofproto, parser = datapath.ofproto, datapath.ofproto_parser
    fields: dict[str, Any] = {}
    if entry.in_port is not None:
        fields["in_port"] = entry.in_port
    if entry.protocol is not None:
        fields["eth_type"] = entries.ETH_TYPES[entry.protocol]
        fields[_DESTINATION_FIELDS[entry.protocol]] = entry.destination
    actions = []
    if entry.group is not None:
        actions.append(parser.OFPActionGroup(entry.group))
    elif entry.output is not None:
        actions.append(parser.OFPActionOutput(entry.output))
    instructions = []
    if actions:
        instructions = [parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)]
    return parser.OFPFlowMod(
        datapath,
        priority=entry.priority,
        match=parser.OFPMatch(**fields),
        instructions=instructions,
    )
