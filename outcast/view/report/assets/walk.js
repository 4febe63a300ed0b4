"use strict";
// The walk from a dropped packet to the packet that brought its data again, and back.

class OutcastWalk {
  constructor(viewer) {
    this.viewer = viewer;
    this.lanes = viewer.lanes;
  }

  takes(what) {
    return ["drop", "drop-before", "again", "first"].includes(what);
  }

  go(what) {
    const viewer = this.viewer;
    if (what === "drop" || what === "drop-before") {
      this.toDrop(what === "drop" ? 1 : -1);
      return;
    }
    const packet = viewer.focus.packet ?? this.firstOfBlackout();
    if (packet === null) {
      viewer.say("Choose a packet first: click one, or press d for the next drop.");
      return;
    }
    const target = what === "again" ? this.lanes.following(packet) : this.lanes.preceding(packet);
    if (target === null) {
      viewer.say(this.nothing(what, packet));
      return;
    }
    const times = [packet, target].map((row) => this.lanes.packets.t_in[row]);
    viewer.reveal(Math.min(...times), Math.max(...times));
    viewer.choose(target);
  }

  nothing(what, packet) {
    const number = `Packet ${this.viewer.number(packet).toLocaleString("en")}`;
    if (what === "first") return `${number} brought no data that was sent before.`;
    return this.lanes.dropped(packet)
      ? `${number} was dropped, and its data did not come in again.`
      : `The data of ${number.toLowerCase()} was not sent again.`;
  }

  // The first dropped packet of the chosen blackout.
  firstOfBlackout() {
    const { chains, packets, rows } = this.lanes, chain = this.viewer.focus.chain;
    if (chain === null) return null;
    const start = chains.t_start[chain];
    for (let i = OutcastLanes.search(packets.t_in, start, 0, rows); i < rows; i++) {
      if (packets.t_in[i] > start) break;
      if (packets.lane[i] === chains.lane[chain] && this.lanes.dropped(i)) return i;
    }
    return null;
  }

  // The drop after or before the chosen packet, or the first one in view; of the chosen flow only.
  toDrop(way) {
    const viewer = this.viewer, { packets, rows } = this.lanes;
    const flow = viewer.focus.flow, chosen = viewer.focus.packet;
    const lane = viewer.lane();
    const edge = way > 0 ? viewer.from : viewer.to;
    let at = chosen ?? this.firstOfBlackout() ?? OutcastLanes.search(packets.t_in, edge, 0, rows);
    if (chosen !== null) at += way;
    else if (way < 0) at -= 1;
    for (; at >= 0 && at < rows; at += way) {
      if (!this.lanes.dropped(at)) continue;
      if (flow !== null && packets.flow[at] !== flow) continue;
      if (lane !== null && packets.lane[at] !== lane) continue;
      viewer.reveal(packets.t_in[at], packets.t_in[at]);
      viewer.choose(at);
      return;
    }
    viewer.say(`No drop ${way > 0 ? "after" : "before"} this.`);
  }

  // What is known of a packet's other copies, in words.
  sayings(row) {
    const before = this.lanes.preceding(row), after = this.lanes.following(row);
    const lines = [];
    if (before !== null) lines.push(`brought the data of ${this.named(before)} again, ${this.gap(before, row)} later`);
    if (after !== null) lines.push(`its data came again in ${this.named(after)}, ${this.gap(row, after)} later`);
    else if (this.lanes.dropped(row) && this.lanes.packets.payload[row]) {
      lines.push("its data did not come in again");
    }
    if (before !== null || after !== null) lines.push("inferred from the captures: same flow, same data");
    return lines;
  }

  named(row) {
    const verdict = this.lanes.header.verdicts[this.lanes.packets.verdict[row]];
    return `packet ${this.viewer.number(row).toLocaleString("en")} (${verdict})`;
  }

  gap(earlier, later) {
    const t = this.lanes.packets.t_in, gap = t[later] - t[earlier];
    return outcastTime(Math.max(1, gap / 1000), gap)(gap);
  }
}
