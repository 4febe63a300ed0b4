"use strict";
// The walk from a dropped packet to the packet that brought its data again, and back.

const OUTCAST_MOST_COPIES = 16;

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
    if (what === "first") {
      const lost = this.elsewhere(packet);
      return lost === null ? `${number} brought no data that was sent before.`
        : `What ${number.toLowerCase()} brought again was dropped elsewhere: ${lost.text}.`;
    }
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
    const elsewhere = before === null ? this.elsewhere(row) : null;
    if (elsewhere) lines.push(`what it brings again was dropped elsewhere: ${elsewhere.text}`);
    if (senders && senders.lostPacket.has(row)) {
      lines.push((this.lanes.dropped(row) ? "dropped: " : "dropped later: ") +
        senders.loss(senders.lostPacket.get(row)));
    }
    if (senders && senders.byPacket.has(row)) {
      lines.push("sent again: " + senders.cause(senders.byPacket.get(row)));
    } else if ((before ?? after) !== null) {
      const known = after !== null && this.lanes.known(row);
      if (!known) lines.push("inferred from the captures: same flow, same data");
    }
    const words = senders && senders.has(this.lanes.packets.flow[row])
      && senders.words(this.lanes.packets.flow[row], this.lanes.packets.t_in[row]);
    if (words) lines.push("its sender then: " + words);
    return lines;
  }

  // When and where the packet was dropped whose data this one brought, if that was elsewhere.
  elsewhere(row) {
    const senders = this.viewer.senders;
    const at = senders ? senders.byPacket.get(row) : undefined;
    const lost = at === undefined ? null : senders.dropOf(at);
    if (lost === null || senders.lost.packet[lost]) return null;
    return { time: senders.lost.t_ns[lost], text: senders.loss(lost) };
  }

  named(row) {
    const verdict = this.lanes.header.verdicts[this.lanes.packets.verdict[row]];
    return `packet ${this.viewer.number(row).toLocaleString("en")} (${verdict})`;
  }

  gap(earlier, later) {
    const t = this.lanes.packets.t_in, gap = t[later] - t[earlier];
    return outcastTime(Math.max(1, gap / 1000), gap)(gap);
  }

  // The packets with the same data, in their order; of very many those around the chosen one.
  copies(row) {
    const copies = [row];
    for (let other = row; copies.length < OUTCAST_MOST_COPIES / 2;) {
      other = this.lanes.preceding(other);
      if (other === null) break;
      copies.unshift(other);
    }
    for (let other = row; copies.length < OUTCAST_MOST_COPIES;) {
      other = this.lanes.following(other);
      if (other === null) break;
      copies.push(other);
    }
    return copies;
  }

  // What happened to the packet's data: {time, text, packet (or null)}, in the order of time.
  steps(row) {
    const copies = this.copies(row), senders = this.viewer.senders, steps = [];
    const first = senders ? senders.byPacket.get(copies[0]) : undefined;
    if (copies.length === 1 && first === undefined) return [];
    const elsewhere = this.elsewhere(copies[0]);
    if (elsewhere) {
      steps.push({ time: elsewhere.time, packet: null, text: `dropped: ${elsewhere.text}` });
    }
    copies.forEach((copy, place) => {
      const at = senders ? senders.byPacket.get(copy) : undefined;
      if (at !== undefined) steps.push(...this.sending(at));
      const again = place > 0 || at !== undefined;
      const inferred = place > 0 && !this.lanes.known(copies[place - 1]);
      const lost = senders ? senders.lostPacket.get(copy) : undefined;
      steps.push({
        time: this.lanes.packets.t_in[copy], packet: copy,
        text: `came in ${again ? "again " : ""}as ${this.named(copy)}` +
          (lost === undefined ? "" : ": " + senders.loss(lost)) +
          (inferred ? "; inferred from the captures" : ""),
      });
    });
    return steps;
  }

  // From the detection of a loss to the call that sends the segment again.
  sending(at) {
    const senders = this.viewer.senders, r = senders.resent, steps = [];
    const text = (code) => senders.texts[code];
    const detected = senders.detected(at), rto = r.rto_ns[at] - 1;
    if (detected !== null) {
      const by = r.detected_by[at] ? ` by ${text(r.detected_by[at])}` : "";
      steps.push({ time: detected, text: `taken for lost${by}` });
    }
    if (r.before[at] && r.after[at] && r.before[at] !== r.after[at]) {
      steps.push({ time: r.t_ns[at],
        text: `congestion state from ${text(r.before[at])} to ${text(r.after[at])}` });
    }
    steps.push({ time: r.t_ns[at],
      text: `sent again: ${senders.cause(at)}${rto > 0 ? `; RTO ${rto / 1e6} ms` : ""}` });
    return steps.map((step) => ({ ...step, packet: null }));
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
      if (step.packet === row) button.setAttribute("aria-current", "true");
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
      // The list was made again, so the element with the keyboard is gone.
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
