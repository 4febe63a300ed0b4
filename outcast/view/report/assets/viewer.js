"use strict";
// The blackout viewer: zoom, pan, details, jumps, and a link that restores the view.

const OUTCAST_LEAST_NS = 500;

class OutcastViewer {
  constructor(root, lanes, senders) {
    this.root = root;
    this.lanes = lanes;
    this.senders = senders;
    this.canvas = root.querySelector("canvas.lanes");
    this.overview = root.querySelector("canvas.overview");
    this.tip = root.querySelector(".tip");
    this.status = root.querySelector(".status");
    this.details = root.querySelector(".details");
    this.painter = new OutcastPainter(this.canvas, lanes, senders);
    this.walk = new OutcastWalk(this);
    this.focus = { flow: null, tracks: [], packet: null, chain: null, time: null,
      sender: senders && senders.first };
    this.pointers = new Map();
    this.fillChoices();
    this.listen();
    this.set(lanes.home, lanes.end);
    this.restore();
  }

  // --- the interval in view

  set(from, to) {
    const whole = this.lanes.end - this.lanes.begin;
    const span = Math.min(whole, Math.max(OUTCAST_LEAST_NS, to - from));
    let start = from + (to - from - span) / 2;
    start = Math.min(Math.max(start, this.lanes.begin), this.lanes.end - span);
    this.from = start;
    this.to = start + span;
    this.redraw();
  }

  zoom(factor, x = 0.5) {
    const span = this.to - this.from, at = this.from + span * x;
    const wanted = Math.max(OUTCAST_LEAST_NS, span * factor);
    this.set(at - wanted * x, at + wanted * (1 - x));
  }

  pan(share) {
    const by = (this.to - this.from) * share;
    this.set(this.from + by, this.to + by);
  }

  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      const began = performance.now();
      this.painter.draw(this.from, this.to, this.focus);
      this.drawOverview();
      this.report(performance.now() - began);
    });
  }

  report(took) {
    const data = this.root.dataset;
    data.from = Math.round(this.from);
    data.to = Math.round(this.to);
    data.mode = this.painter.single ? "marks" : "columns";
    data.frames = Number(data.frames || 0) + 1;
    data.took = took.toFixed(1);
    clearTimeout(this.later);
    this.later = setTimeout(() => this.settle(), 150);
  }

  // What need not follow every frame: the counts, and the address.
  settle() {
    const drops = this.lanes.count("drop", this.from, this.to);
    const others = this.lanes.count("in", this.from, this.to);
    const span = outcastTime((this.to - this.from) / 1000, this.to - this.from);
    const detail = this.painter.single ? "a mark for each packet"
      : "bars show packets per pixel, on a root scale; zoom in for a mark for each";
    this.status.textContent =
      `${span(this.to - this.from)} in view: ${(drops + others).toLocaleString("en")} packets ` +
      `came in, ${drops.toLocaleString("en")} of them dropped (${detail}).`;
    this.root.dataset.drops = drops;
    this.root.dataset.packets = drops + others;
    const hash = this.hash();
    if (this.touched && location.hash !== hash) history.replaceState(null, "", hash);
  }

  hash() {
    const parts = [
      "at=" + Math.round(this.from), "span=" + Math.round(this.to - this.from),
    ];
    if (this.focus.packet !== null) parts.push("packet=" + this.number(this.focus.packet));
    if (this.focus.chain !== null) parts.push("blackout=" + this.lanes.chains.number[this.focus.chain]);
    if (this.senders && this.focus.sender !== this.senders.first) {
      parts.push("sender=" + this.lanes.header.flows[this.focus.sender].flow);
    }
    return "#" + parts.join("&");
  }

  restore() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const at = Number(wanted.get("at")), span = Number(wanted.get("span"));
    if (wanted.has("blackout") && !wanted.has("at")) {
      this.showChain(this.chainOf(Number(wanted.get("blackout"))));
      return;
    }
    if (!wanted.has("at") || !Number.isFinite(at) || !(span > 0)) return;
    if (wanted.has("blackout")) this.focus.chain = this.chainOf(Number(wanted.get("blackout")));
    this.touched = true;
    this.set(at, at + span);
    const flow = Number(wanted.get("sender"));
    if (wanted.has("sender")) {
      this.showSender(this.lanes.header.flows.findIndex((one) => one.flow === flow));
    }
    const packet = Number(wanted.get("packet"));
    if (wanted.has("packet")) {
      const row = this.rowOf(packet);
      if (row !== null) this.choose(row);
    } else if (this.focus.chain !== null) {
      this.tellChain(this.focus.chain);
    }
    this.root.scrollIntoView();
  }

  // A packet's number in packets.parquet, and back; they differ where the page is thinned.
  number(row) {
    const numbers = this.lanes.packets.row;
    return numbers ? numbers[row] : row;
  }

  rowOf(number) {
    const numbers = this.lanes.packets.row;
    const row = numbers ? OutcastLanes.search(numbers, number) : number;
    return row >= 0 && row < this.lanes.rows ? row : null;
  }

  // --- blackouts

  // The place of a blackout by its number, which is its row in blackouts.parquet.
  chainOf(number) {
    const place = Array.from(this.lanes.chains.number).indexOf(number);
    return place < 0 ? null : place;
  }

  lane() {
    const value = this.root.querySelector(".port select").value;
    return value === "" ? null : Number(value);
  }

  jump(way) {
    const lane = this.lane(), c = this.lanes.chains;
    if (way === "longest") {
      this.showChain(this.lanes.longest(lane));
      return;
    }
    const all = this.lanes.blackouts(lane);
    const now = this.focus.chain;
    const middle = (this.from + this.to) / 2;
    let found = null;
    for (const i of all) {
      const after = now !== null ? i > now : c.t_start[i] > middle;
      const before = now !== null ? i < now : c.t_start[i] < middle;
      if (way === "next" && after) { found = i; break; }
      if (way === "previous" && before) found = i;
    }
    if (found === null && all.length) {
      this.say(`No ${way} blackout of ${lane === null ? "any port" : this.port(lane)}.`);
      return;
    }
    this.showChain(found);
  }

  port(lane) {
    return this.lanes.header.inputs[lane].port;
  }

  showChain(i) {
    const c = this.lanes.chains;
    if (i === null || !(i >= 0 && i < c.rows)) {
      this.say("No blackout: no chain of drops while other ports got through.");
      return;
    }
    this.touched = true;
    this.focus.chain = i;
    this.focus.packet = this.focus.time = null;
    this.walk.list(null);
    const margin = Math.max(c.lasts[i] * 0.35, 30000);
    this.set(c.t_start[i] - margin, c.t_start[i] + c.lasts[i] + margin);
    this.tellChain(i);
    this.scrollHere();
  }

  tellChain(i) {
    const c = this.lanes.chains;
    const data = this.root.dataset;
    data.chainStart = c.t_start[i];
    data.chainEnd = c.t_start[i] + c.lasts[i];
    data.chainDrops = c.drops[i];
    data.chainPort = this.port(c.lane[i]);
    const lasts = outcastTime(100, c.lasts[i])(c.lasts[i]);
    this.say(
      `Blackout ${c.number[i]} of ${this.port(c.lane[i])} at ${(c.t_start[i] / 1e6).toFixed(4)} ms, ` +
      `for ${lasts}: ${c.drops[i]} packets of ${c.flows[i]} flow${c.flows[i] > 1 ? "s" : ""} ` +
      `dropped in a row while ${c.through[i]} of other ports got through` +
      (c.drops[i] > 1 ? `; longest gap ${outcastTime(100, c.gap[i])(c.gap[i])}, after ${c.before_gap[i]}.` : "."));
  }

  // Moves the page only where the timeline is not in the upper half of what is in view.
  scrollHere() {
    const box = this.canvas.getBoundingClientRect();
    if (box.top < 0 || box.top > innerHeight / 2) this.root.scrollIntoView();
  }

  say(text) {
    this.details.textContent = text;
  }

  // --- packets

  describe(row) {
    const p = this.lanes.packets, h = this.lanes.header, flow = h.flows[p.flow[row]];
    const ms = (time) => (time / 1e6).toFixed(6) + " ms";
    const bytes = (value) => value.toLocaleString("en") + " bytes";
    const group = flow.group === null ? "" : `, ${flow.group}`;
    const verdict = h.verdicts[p.verdict[row]];
    const lines = [
      `packet ${this.number(row).toLocaleString("en")}: ${verdict}`,
      `flow ${flow.label}${group}, ${flow.from} to ${flow.to}`,
      `in by ${this.port(p.lane[row])} at ${ms(p.t_in[row])}`,
    ];
    if (p.stays[row]) {
      const output = p.output[row] ? h.outputs[p.output[row] - 1].port : "an output";
      lines.push(`out by ${output} at ${ms(this.lanes.out[row])}, ` +
        `${((p.stays[row] - 1) / 1e3).toFixed(3)} µs later`);
    }
    if (p.found[row]) lines.push(`found ${bytes(p.found[row] - 1)} queued`);
    const names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
    const flags = names.filter((_, bit) => p.flags[row] & (1 << bit)).join(" ");
    lines.push(`seq ${this.lanes.seq[row]}, ${bytes(p.payload[row])} of data, ` +
      `frame of ${bytes(p.frame[row])}${flags ? ", " + flags : ""}`);
    const note = h.notes[p.note[row]];
    if (note) lines.push("note: " + note);
    return lines.concat(this.walk.sayings(row));
  }

  choose(row) {
    this.focus.packet = row;
    this.focus.time = null;
    this.showSender(this.lanes.packets.flow[row]);
    this.walk.list(row);
    this.touched = true;
    this.say(this.describe(row).join("; ") + "." + this.whatIf(row));
    this.redraw();
  }

  // The command that gives a packet of a virtual run another fate.
  whatIf(row) {
    const h = this.lanes.header, isDropped = h.verdicts[this.lanes.packets.verdict[row]] === "dropped";
    if (!h.virtual) return "";
    const fate = isDropped ? "forward" : "drop";
    return ` What if: outcast whatif DIR --packet ${this.number(row)} --fate ${fate}`;
  }

  // Shows the window of another flow's sender, if there is one.
  showSender(flow) {
    if (!this.senders || !this.senders.has(flow)) return;
    this.focus.sender = flow;
    this.root.querySelector(".shown-sender select").value = flow;
    this.redraw();
  }

  // Brings an interval into view with a margin, if it is not there yet.
  reveal(from, to) {
    const whole = to - from, margin = 0.08 * Math.max(this.to - this.from, whole);
    if (from >= this.from && to <= this.to) return;
    const span = Math.max(this.to - this.from, whole + 2 * margin);
    const start = (from + to - span) / 2;
    this.set(start, start + span);
  }

  // The packet after or before the chosen one in the same lane, brought into view.
  step(way) {
    const p = this.lanes.packets;
    let row = this.focus.packet;
    const from = row === null
      ? OutcastLanes.search(p.t_in, (this.from + this.to) / 2, 0, p.rows) - way : row;
    const lane = row === null ? null : p.lane[row];
    for (let i = from + way; i >= 0 && i < p.rows; i += way) {
      if (lane === null || p.lane[i] === lane) {
        const t = p.t_in[i], span = this.to - this.from;
        if (t < this.from || t > this.to) this.set(t - span / 2, t + span / 2);
        this.choose(i);
        return;
      }
    }
  }

  // The packet at a point of the canvas, or how many there are, or null.
  at(x, y) {
    const painter = this.painter;
    const row = painter.rowsOfLanes.find((one) => y >= one.top && y <= one.bottom + 4);
    if (!row || row.kind === "queue") return null;
    const reach = 6 / painter.scale, time = this.from + x / painter.scale;
    if (row.lane < 0) return painter.senderLanes.at(row, this.focus.sender, time, reach);
    const wantsDrop = row.kind === "in" && y >= row.drop;
    let best = null, near = 0, dropped = 0;
    for (const track of this.lanes.tracks) {
      if (track.lane !== row.lane || (track.kind === "out") !== (row.kind === "out")) continue;
      const low = OutcastLanes.search(track.time, time - reach);
      const high = OutcastLanes.search(track.time, time + reach);
      const many = track.sums ? track.sums[high] - track.sums[low] : high - low;
      near += many;
      if (track.kind === "drop") dropped += many;
      if (high - low > 50) continue;
      for (let at = low; at < high; at++) {
        const away = Math.abs(track.time[at] - time) +
          (row.kind === "in" && (track.kind === "drop") !== wantsDrop ? reach : 0);
        if (best === null || away < best.away) best = { away, packet: track.rows[at] };
      }
    }
    if (!near) return null;
    if (near > 12 || best === null) {
      const span = outcastTime(reach / 20, 2 * reach)(2 * reach);
      return { lines: [
        `${row.name}: ${near.toLocaleString("en")} packets within ${span}` +
        (row.kind === "in" ? `, ${dropped.toLocaleString("en")} dropped` : ""), "zoom in for each",
      ] };
    }
    return { packet: best.packet, lines: this.describe(best.packet) };
  }

  hover(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const found = this.at(x, y);
    this.tip.hidden = !found;
    if (!found) return;
    this.tip.replaceChildren(...found.lines.map((line) => {
      const part = document.createElement("div");
      part.textContent = line;
      return part;
    }));
    const wide = this.tip.offsetWidth, tall = this.tip.offsetHeight;
    const left = Math.min(Math.max(0, x + 14), Math.max(0, box.width - wide));
    const top = y + 18 + tall > box.height ? Math.max(0, y - tall - 10) : y + 18;
    this.tip.style.left = left + this.canvas.offsetLeft + "px";
    this.tip.style.top = top + this.canvas.offsetTop + "px";
  }

  // --- choices and the overview

  fillChoices() {
    const header = this.lanes.header;
    const select = this.root.querySelector(".port select");
    header.inputs.forEach((input, lane) => select.add(new Option(input.label, lane)));
    if (this.senders) {
      const senders = this.root.querySelector(".shown-sender select");
      header.flows.forEach((flow, place) => {
        if (this.senders.has(place)) senders.add(new Option(flow.label, place));
      });
      senders.addEventListener("change", () => this.showSender(Number(senders.value)));
    }
    const list = this.root.querySelector(".flows");
    const shown = header.flows.slice(0, 64);
    shown.forEach((flow, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "false");
      const mark = document.createElement("span");
      mark.style.background = header.palette[flow.colour];
      mark.setAttribute("aria-hidden", "true");
      button.append(mark, flow.label + (flow.group === null ? "" : `, ${flow.group}`));
      button.addEventListener("click", () => this.highlight(place, button));
      list.append(button);
    });
    if (shown.length < header.flows.length) {
      list.append(`and ${header.flows.length - shown.length} more`);
    }
  }

  highlight(flow, button) {
    const chosen = this.focus.flow === flow ? null : flow;
    for (const other of this.root.querySelectorAll(".flows button")) {
      other.setAttribute("aria-pressed", String(other === button && chosen !== null));
    }
    this.focus.flow = chosen;
    if (chosen !== null) this.showSender(chosen);
    this.focus.tracks = [];
    if (chosen !== null) {
      const of = this.lanes.packets.flow, colour = this.lanes.header.flows[chosen].colour;
      for (const track of this.lanes.tracks) {
        if (track.colour !== colour) continue;
        const places = [];
        track.rows.forEach((row, at) => { if (of[row] === chosen) places.push(at); });
        const rows = Uint32Array.from(places, (at) => track.rows[at]);
        const time = Float64Array.from(places, (at) => track.time[at]);
        this.focus.tracks.push({ ...track, rows, time, count: rows.length, sums: null });
      }
    }
    this.redraw();
  }

  drawOverview() {
    const canvas = this.overview, g = canvas.getContext("2d");
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const width = Math.max(50, Math.round(canvas.clientWidth * ratio)), tall = 26 * ratio;
    if (!this.drops || this.drops.width !== width) {
      canvas.width = width;
      canvas.height = tall;
      this.drops = this.summary(width, tall);
    }
    g.drawImage(this.drops, 0, 0);
    const scale = width / (this.lanes.end - this.lanes.home);
    const a = (this.from - this.lanes.home) * scale, b = (this.to - this.lanes.home) * scale;
    g.fillStyle = "rgba(0, 0, 0, 0.13)";
    g.fillRect(0, 0, a, tall);
    g.fillRect(b, 0, width - b, tall);
    g.strokeStyle = "#000";
    g.lineWidth = 2 * ratio;
    g.strokeRect(a, ratio, Math.max(2 * ratio, b - a), tall - 2 * ratio);
  }

  // Drops over the whole run, which do not change: drawn once.
  summary(width, tall) {
    const canvas = document.createElement("canvas");
    canvas.width = width;
    canvas.height = tall;
    const g = canvas.getContext("2d");
    const counts = new Float64Array(width);
    const scale = width / (this.lanes.end - this.lanes.home);
    for (const track of this.lanes.tracks) {
      if (track.kind !== "drop") continue;
      for (let at = 0; at < track.count; at++) {
        const x = Math.floor((track.time[at] - this.lanes.home) * scale);
        counts[Math.min(width - 1, Math.max(0, x))]++;
      }
    }
    let most = 1;
    for (const count of counts) most = Math.max(most, count);
    g.fillStyle = "#fff";
    g.fillRect(0, 0, width, tall);
    g.fillStyle = "#9c3500";
    counts.forEach((count, x) => {
      if (!count) return;
      const reach = Math.max(3, (tall - 2) * Math.sqrt(count / most));
      g.fillRect(x, tall - reach, 1, reach);
    });
    return canvas;
  }

  // --- events

  do(what) {
    this.touched = true;
    if (what === "whole") {
      this.focus.chain = null;
      this.set(this.lanes.home, this.lanes.end);
    } else if (what === "in") this.zoom(0.5);
    else if (what === "out") this.zoom(2);
    else if (what === "left") this.pan(-0.25);
    else if (what === "right") this.pan(0.25);
    else if (what === "link") this.copy();
    else if (this.walk.takes(what)) this.walk.go(what);
    else this.jump(what);
  }

  async copy() {
    const address = location.href.split("#")[0] + this.hash();
    history.replaceState(null, "", this.hash());
    try {
      await navigator.clipboard.writeText(address);
      this.say("Copied: " + address);
    } catch {
      this.say("The address of this view: " + address);
    }
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      ArrowLeft: "left", ArrowRight: "right", ArrowUp: "in", ArrowDown: "out", "+": "in",
      "=": "in", "-": "out", Home: "whole", 0: "whole", n: "next", p: "previous", l: "longest",
      d: "drop", D: "drop-before", r: "again", b: "first",
    };
    if (actions[event.key]) this.do(actions[event.key]);
    else if (event.key === ".") this.step(1);
    else if (event.key === ",") this.step(-1);
    else if (event.key === "Escape") {
      this.focus.packet = this.focus.chain = this.focus.time = null;
      this.walk.list(null);
      this.say("");
      this.redraw();
    } else return;
    event.preventDefault();
  }

  listen() {
    const canvas = this.canvas;
    for (const button of this.root.querySelectorAll("button[data-do]")) {
      button.addEventListener("click", () => this.do(button.dataset.do));
    }
    this.root.querySelector(".port select").addEventListener("change", () => {
      this.focus.chain = null;
      this.redraw();
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
    // From anywhere on the page, as long as nothing else on it wants the keys.
    document.addEventListener("keydown", (event) => {
      if (event.target !== document.body || !["n", "p", "l"].includes(event.key)) return;
      this.key(event);
      canvas.focus({ preventScroll: true });
    });
    // The page scrolls as ever until the viewer is clicked or reached with Tab.
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return;
      event.preventDefault();
      this.touched = true;
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        this.pan(event.deltaX / this.painter.width);
        return;
      }
      const x = event.clientX - canvas.getBoundingClientRect().left;
      const lines = event.deltaMode === 1 ? 30 : 1;
      this.zoom(Math.exp(event.deltaY * lines * 0.002), x / this.painter.width);
    }, { passive: false });
    canvas.addEventListener("dblclick", (event) => {
      this.touched = true;
      const x = event.clientX - canvas.getBoundingClientRect().left;
      this.zoom(0.25, x / this.painter.width);
    });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, event.clientX);
      this.moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => this.move(event));
    const up = (event) => {
      if (!this.pointers.delete(event.pointerId)) return;
      if (event.type !== "pointerup" || this.moved > 4 || this.pointers.size) return;
      const box = canvas.getBoundingClientRect();
      const found = this.at(event.clientX - box.left, event.clientY - box.top);
      if (found && found.packet !== undefined) this.choose(found.packet);
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    const there = (event) => {
      const box = this.overview.getBoundingClientRect();
      const share = (event.clientX - box.left) / box.width;
      const at = this.lanes.home + share * (this.lanes.end - this.lanes.home);
      const span = this.to - this.from;
      this.touched = true;
      this.set(at - span / 2, at + span / 2);
    };
    this.overview.addEventListener("pointerdown", there);
    this.overview.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) there(event);
    });
    window.addEventListener("hashchange", () => this.restore());
    new ResizeObserver(() => {
      this.drops = null;
      this.redraw();
    }).observe(canvas);
    window.addEventListener("beforeprint", () => {
      this.painter.draw(this.from, this.to, this.focus);
    });
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (before === undefined) {
      this.hover(event);
      return;
    }
    this.tip.hidden = true;
    this.touched = true;
    const left = this.canvas.getBoundingClientRect().left;
    const width = this.painter.width, span = this.to - this.from;
    if (this.pointers.size === 1) {
      const by = event.clientX - before;
      this.moved += Math.abs(by);
      this.set(this.from - (by / width) * span, this.to - (by / width) * span);
    } else if (this.pointers.size === 2) {
      const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId);
      const was = Math.abs(before - other[1]), is = Math.abs(event.clientX - other[1]);
      if (was > 5 && is > 5) this.zoom(was / is, (other[1] - left) / width);
      this.moved = 99;
    }
    this.pointers.set(event.pointerId, event.clientX);
  }
}

(async () => {
  const root = document.getElementById("blackouts-viewer");
  if (!root) return;
  const text = (id) => document.getElementById(id).textContent;
  const header = JSON.parse(text("viewer-header"));
  if (typeof DecompressionStream === "undefined") {
    root.querySelector(".status").textContent =
      "This browser cannot inflate the data (DecompressionStream); any of 2023 or later can.";
    return;
  }
  const tables = await outcastTables(header.tables, text("viewer-data"));
  const senders = header.senders && new OutcastSenders(header, tables);
  const viewer = new OutcastViewer(root, new OutcastLanes(header, tables), senders);
  for (const link of document.querySelectorAll("a[data-blackout]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      viewer.showChain(viewer.chainOf(Number(link.dataset.blackout)));
      viewer.canvas.focus({ preventScroll: true });
    });
  }
  root.dataset.ready = "yes";
})();
