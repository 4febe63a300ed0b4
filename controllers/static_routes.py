"""An OpenFlow application that installs static routes before any packet asks for them.

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
            *(_flow_mod(datapath, entry) for entry in self._planned[switch]),
            barrier,
        ]
        for message in messages:
            datapath.set_xid(message)
            message.serialize()
        self._installed.discard(switch)
        self._barriers[switch] = (datapath, barrier.xid)
        datapath.send(b"".join(bytes(message.buf) for message in messages))

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


def _flow_mod(datapath: Any, entry: entries.Entry) -> Any:
    ofproto, parser = datapath.ofproto, datapath.ofproto_parser
    fields: dict[str, Any] = {}
    if entry.in_port is not None:
        fields["in_port"] = entry.in_port
    if entry.protocol is not None:
        fields["eth_type"] = entries.ETH_TYPES[entry.protocol]
        fields[{"ip": "ipv4_dst", "arp": "arp_tpa"}[entry.protocol]] = entry.destination
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
