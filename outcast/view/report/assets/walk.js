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

  // What is known of a packet's other copies, and of its sender, in words.
  sayings(row) {
    const before = this.lanes.preceding(row), after = this.lanes.following(row);
    const lines = [];
    if (before !== null) {
      lines.push(`brought the data of ${this.named(before)} again, ${this.gap(before, row)} later`);
    }
    if (after !== null) {
      lines.push(`its data came again in ${this.named(after)}, ${this.gap(row, after)} later`);
    } else if (this.lanes.dropped(row) && this.lanes.packets.payload[row]) {
      lines.push("its data did not come in again");
    }
    const senders = this.viewer.senders;
    if (senders && senders.lostPacket.has(row)) {
      lines.push("dropped by " + senders.loss(senders.lostPacket.get(row)));
    }
    if (senders && senders.byPacket.has(row)) {
      lines.push("sent again because of " + senders.cause(senders.byPacket.get(row)));
    } else if ((before ?? after) !== null) {
      const known = after !== null && this.lanes.known(row);
      if (!known) lines.push("inferred from the captures: same flow, same data");
    }
    const words = senders && senders.has(this.lanes.packets.flow[row])
      && senders.words(this.lanes.packets.flow[row], this.lanes.packets.t_in[row]);
    if (words) lines.push("its sender then: " + words);
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

  // The steps from a drop to what was sent again: {time, text, packet (or null)}, in their order.
  steps(row) {
    const lanes = this.lanes, senders = this.viewer.senders, t = lanes.packets.t_in;
    const [pair] = lanes.following(row) !== null ? [[row, lanes.following(row)]]
      : lanes.pairsOf(row);
    if (!pair) return [];
    const [drop, later] = pair;
    const steps = [], lost = senders ? senders.lostPacket.get(drop) : undefined;
    steps.push({ time: t[drop], packet: drop, text: lanes.dropped(drop)
      ? `packet ${this.number(drop)} was dropped`
        + (lost === undefined ? "" : ": " + senders.loss(lost))
      : `packet ${this.number(drop)} came in` });
    const at = senders ? senders.byPacket.get(later) : undefined;
    if (at !== undefined) {
      const r = senders.resent, text = (code) => senders.texts[code];
      const detected = senders.detected(at);
      if (detected !== null) {
        const by = text(r.detected_by[at]) || (r.timer[at] ? `the ${text(r.timer[at])} timer` : "");
        const rto = r.timer[at] && r.rto_ns[at] > 0
          ? `, RTO ${outcastTime(1000, r.rto_ns[at] - 1)(r.rto_ns[at] - 1)}` : "";
        steps.push({ time: detected, packet: null,
          text: `taken for lost${by ? " by " + by : ""}${rto}` });
      }
      if (r.after[at]) {
        const changed = r.before[at] && r.before[at] !== r.after[at];
        steps.push({ time: detected ?? r.t_ns[at], packet: null, text: changed
          ? `congestion state from ${text(r.before[at])} to ${text(r.after[at])}`
          : `congestion state stayed ${text(r.after[at])}` });
      }
      steps.push({ time: r.t_ns[at], packet: null, text: `sent again: ${senders.cause(at)}` });
    }
    steps.push({ time: t[later], packet: later, text: `came in again as packet ` +
      `${this.number(later)}, ${lanes.header.verdicts[lanes.packets.verdict[later]]}` +
      (lanes.known(drop) ? "" : " (inferred from the captures)") });
    return steps;
  }

  number(row) {
    return this.viewer.number(row).toLocaleString("en");
  }

  // Lists the steps of a packet's walk below the timeline, each as a button that goes there.
  list(row) {
    const list = this.viewer.root.querySelector(".walk");
    const steps = row === null ? [] : this.steps(row);
    list.replaceChildren(...steps.map((step) => {
      const item = document.createElement("li"), button = document.createElement("button");
      const after = step.time - steps[0].time;
      button.type = "button";
      button.textContent = `${(step.time / 1e6).toFixed(6)} ms` +
        (after ? ` (+${outcastTime(Math.max(1, after / 1000), after)(after)})` : "");
      if (step.packet === row) button.setAttribute("aria-current", "step");
      button.addEventListener("click", () => this.show(step, steps));
      item.append(button, " " + step.text);
      return item;
    }));
  }

  show(step, steps) {
    const viewer = this.viewer;
    viewer.reveal(step.time, step.time);
    if (step.packet !== null) {
      const place = steps.indexOf(step);
      viewer.choose(step.packet);
      // The list was made anew, so what had the keyboard is gone.
      viewer.root.querySelectorAll(".walk button")[place]?.focus();
    } else {
      viewer.focus.time = step.time;
      viewer.touched = true;
      const words = viewer.senders.words(viewer.focus.sender, step.time);
      viewer.say(`${(step.time / 1e6).toFixed(6)} ms: ${step.text}${words ? "; sender: " + words : ""}.`);
      viewer.redraw();
    }
  }
}
