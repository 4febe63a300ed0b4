"use strict";
// The senders by the kernel's events, and their lanes beneath the packets: the congestion
// window with what is in flight, the congestion state, and what was sent again and why.

const OUTCAST_STATES = [
  { name: "Open", height: 0.15 },
  { name: "Disorder", height: 0.4 },
  { name: "CWR", height: 0.55 },
  { name: "Recovery", height: 0.78 },
  { name: "Loss", height: 1 },
];
// The report brings the colours, which figures have too.
const outcastStateColour = (name) => OUTCAST_STATES.find((one) => one.name === name).colour;
// The marks of segments sent again; of those that would overlap the first kind is written.
const OUTCAST_MARKS = [
  { letter: "T", meaning: "timeout" },
  { letter: "A", meaning: "after a timeout" },
  { letter: "P", meaning: "probe" },
  { letter: "R", meaning: "recovery" },
];
// outcast/uses/why/causes.py says how each is found.
const OUTCAST_CAUSES = {
  rto: ["T", "the retransmission timer fired"],
  syn: ["T", "the timer of the connection's first segment fired"],
  synack: ["T", "the timer of the connection's answer fired"],
  after_rto: ["A", "lost segments follow after a timeout"],
  tlp: ["P", "a tail loss probe"],
  window_probe: ["P", "a probe of the receiver's closed window"],
  rack: ["R", "an acknowledgement of what was sent later showed the loss"],
  reordering_timer: ["R", "what was sent later came, and the wait for reordering was over"],
  lost_retransmission: ["R", "the retransmission was lost too"],
  newreno: ["R", "duplicate or partial acknowledgements, without SACK"],
  no_congestion: ["R", "path MTU or Fast Open, no congestion"],
};

class OutcastSenders {
  constructor(header, tables) {
    for (const one of OUTCAST_STATES) one.colour = header.colours[one.name];
    for (const one of OUTCAST_MARKS) one.colour = header.colours[one.letter];
    this.texts = header.senders.texts;
    this.every = header.senders.every;
    this.table = tables.series;
    this.resent = tables.resent;
    this.lost = tables.lost;
    this.resent.kind = Array.from(this.resent.cause, (code) => {
      const [letter] = OUTCAST_CAUSES[this.texts[code]] || ["R"];
      return OUTCAST_MARKS.findIndex((mark) => mark.letter === letter);
    });
    this.byFlow = new Map();
    this.byPacket = new Map();
    this.resent.packet.forEach((place, at) => { if (place) this.byPacket.set(place - 1, at); });
    this.lostPacket = new Map();
    // What the bottleneck let through can be dropped later, so the first drop counts.
    this.lost.packet.forEach((place, at) => {
      if (place && !this.lostPacket.has(place - 1)) this.lostPacket.set(place - 1, at);
    });
    // The first flow of the page that has a series.
    this.first = this.table.flow[0];
  }

  has(flow) {
    const { flow: flows } = this.table;
    return flows[OutcastLanes.search(flows, flow)] === flow;
  }

  // A flow's points, marks and spans of states, put together when it is first shown.
  of(flow) {
    let made = this.byFlow.get(flow);
    if (made) return made;
    const s = this.table;
    const from = OutcastLanes.search(s.flow, flow), to = OutcastLanes.search(s.flow, flow + 1);
    made = { from, to };
    for (const name of ["t_ns", "cwnd", "ssthresh", "in_flight", "srtt_us", "rto_us", "state"]) {
      made[name] = s[name].subarray(from, to);
    }
    const only = (table) => {
      const places = [];
      for (let at = 0; at < table.rows; at++) if (table.flow[at] === flow) places.push(at);
      return places;
    };
    made.resent = only(this.resent);
    made.sent = Float64Array.from(made.resent, (at) => this.resent.t_ns[at]);
    made.lost = only(this.lost);
    made.lostAt = Float64Array.from(made.lost, (at) => this.lost.t_ns[at]);
    made.spans = this.spans(made);
    this.byFlow.set(flow, made);
    return made;
  }

  // When the state changed: at acknowledgements, and where a retransmission says so.
  spans(made) {
    const changes = [], r = this.resent;
    const code = (text) => OUTCAST_STATES.findIndex((one) => one.name.toLowerCase() === this.texts[text]);
    for (let at = 0; at < made.t_ns.length; at++) {
      if (!at || made.state[at] !== made.state[at - 1]) {
        changes.push([made.t_ns[at], code(made.state[at])]);
      }
    }
    for (const at of made.resent) {
      if (r.after[at]) changes.push([r.t_ns[at], code(r.after[at])]);
    }
    changes.sort((a, b) => a[0] - b[0]);
    const start = [], state = [];
    for (const [time, which] of changes) {
      if (state.length && state[state.length - 1] === which) continue;
      start.push(time);
      state.push(which);
    }
    return { start: Float64Array.from(start), state };
  }

  detected(at) {
    const waited = this.resent.waited[at];
    return waited ? this.resent.t_ns[at] - (waited - 1) : null;
  }

  // The last point of a flow up to a time, in words; null before the first.
  words(flow, time) {
    const series = this.of(flow);
    const at = OutcastLanes.search(series.t_ns, time + 1) - 1;
    if (at < 0) return null;
    const span = OutcastLanes.search(series.spans.start, time + 1) - 1;
    const state = OUTCAST_STATES[series.spans.state[span]];
    const parts = [];
    const add = (value, text) => { if (value >= 0) parts.push(text(value.toLocaleString("en"))); };
    add(series.cwnd[at], (value) => `cwnd ${value}`);
    add(series.ssthresh[at], (value) => `ssthresh ${value}`);
    add(series.in_flight[at], (value) => `${value} in flight`);
    if (state) parts.push("state " + state.name);
    add(series.srtt_us[at], (value) => `srtt ${value} µs`);
    if (series.rto_us[at] >= 0) parts.push(`RTO ${series.rto_us[at] / 1000} ms`);
    return parts.join(", ");
  }

  // Why a segment was sent again, in words.
  cause(at) {
    const r = this.resent, name = this.texts[r.cause[at]];
    const words = OUTCAST_CAUSES[name] ? `${OUTCAST_CAUSES[name][1]} (${name})` : name || "unknown";
    return words + (r.undone[at] ? ", undone later because it was not needed" : "");
  }

  // The drop that a retransmission repairs, as a place in `lost`; null if none is known.
  dropOf(at) {
    const r = this.resent;
    if (!r.lost[at]) return null;
    const series = this.of(r.flow[at]), time = r.t_ns[at] - (r.lost[at] - 1);
    const place = OutcastLanes.search(series.lostAt, time);
    return series.lostAt[place] === time ? series.lost[place] : null;
  }

  // Why a packet was dropped, and by which function of the kernel.
  loss(at) {
    const l = this.lost, text = (code) => this.texts[code];
    const parts = [
      text(l.port[at]) || text(l.host[at]),
      text(l.qdisc[at]) && "qdisc " + text(l.qdisc[at]),
      text(l.reason[at]), text(l.where[at]) && text(l.where[at]) + "()",
    ];
    return parts.filter(Boolean).join(", ");
  }
}

class OutcastSenderLanes {
  constructor(painter, senders) {
    this.painter = painter;
    this.senders = senders;
  }

  // Adds the lanes from `y` on, and returns where they end.
  arrange(rows, y) {
    for (const [kind, height] of [["window", 90], ["state", 20], ["causes", 21], ["losses", 11]]) {
      rows.push({ kind, lane: -1, name: "", top: y, bar: y + 16, height, bottom: y + 16 + height });
      y += 16 + height + 8;
    }
    return y;
  }

  draw(row, flow) {
    const series = this.senders.of(flow);
    const label = this.painter.header.flows[flow].label;
    row.name = { window: "window of " + label, state: "congestion state of " + label,
      causes: "sent again by " + label, losses: "drops of " + label + " anywhere" }[row.kind];
    this[row.kind](row, series);
    if (row.kind === "window") this.lines(row, series);
    this.legend(row);
  }

  window(row, series) {
    const { context: g, from, to, width } = this.painter;
    const low = Math.max(0, OutcastLanes.search(series.t_ns, from) - 1);
    const high = Math.min(series.t_ns.length, OutcastLanes.search(series.t_ns, to) + 1);
    // Windows leap once other flows have ended, so what comes after the traffic does not count.
    const { duration_ns: ends } = this.painter.header;
    const counts = series.t_ns[low] < ends ? ends : Infinity;
    let most = 1;
    for (let at = low; at < high && series.t_ns[at] <= counts; at++) {
      most = Math.max(most, series.cwnd[at], series.in_flight[at]);
    }
    const y = (value) => Math.max(row.bar, row.bottom - (value / (most * 1.15)) * row.height);
    const single = high - low <= width;
    if (single) {
      this.steps(series, "in_flight", low, high, y);
      g.lineTo(width + 5, row.bottom);
      g.lineTo(-5, row.bottom);
      g.fillStyle = "#e4e4e4";
      g.fill();
      this.steps(series, "in_flight", low, high, y);
      g.strokeStyle = "#888";
      g.lineWidth = 1;
      g.stroke();
      this.steps(series, "cwnd", low, high, y);
      g.strokeStyle = outcastStateColour("Recovery");
      g.lineWidth = 1.8;
      g.stroke();
    } else {
      this.band(series, "in_flight", low, high, y, "#c4c4c4");
      this.band(series, "cwnd", low, high, y, outcastStateColour("Recovery"));
    }
    this.threshold(series, low, high, y);
    g.font = OUTCAST_FONT;
    g.textBaseline = "bottom";
    g.textAlign = "right";
    const text = `${most.toLocaleString("en")} segments`;
    g.fillStyle = "#ffffffd0";
    g.fillRect(width - g.measureText(text).width - 8, row.top, 400, 15);
    g.fillStyle = "#333";
    g.fillText(text, width - 4, row.top + 15);
    g.strokeStyle = "#bbb";
    g.lineWidth = 1;
    g.beginPath();
    g.moveTo(0, Math.round(y(most)) + 0.5);
    g.lineTo(width, Math.round(y(most)) + 0.5);
    g.stroke();
  }

  // A path of steps through a column of the series.
  steps(series, name, low, high, y) {
    const { context: g, width } = this.painter;
    g.beginPath();
    let last = null;
    for (let at = low; at < high; at++) {
      const value = series[name][at];
      if (value < 0) continue;
      const x = Math.max(-5, Math.min(width + 5, this.painter.x(series.t_ns[at])));
      if (last === null) g.moveTo(x, y(value));
      else g.lineTo(x, y(last));
      g.lineTo(x, y(value));
      last = value;
    }
    if (last !== null) g.lineTo(width + 5, y(last));
  }

  // Least and most of a column of the series in each column of pixels.
  band(series, name, low, high, y, colour) {
    const { context: g, from, scale, width } = this.painter;
    g.fillStyle = colour;
    let held = -1, at = low;
    for (let x = 0; x < width; x++) {
      const bound = from + (x + 1) / scale;
      let least = held, most = held;
      for (; at < high && series.t_ns[at] < bound; at++) {
        const value = series[name][at];
        if (value < 0) continue;
        least = least < 0 ? value : Math.min(least, value);
        most = Math.max(most, value);
        held = value;
      }
      if (most >= 0) g.fillRect(x, y(most), 1, Math.max(1.8, y(least) - y(most)));
    }
  }

  threshold(series, low, high, y) {
    const { context: g, width } = this.painter;
    g.strokeStyle = outcastStateColour("Disorder");
    g.lineWidth = 1.2;
    g.setLineDash([6, 4]);
    g.beginPath();
    let last = -1;
    for (let at = low; at < high; at++) {
      const value = series.ssthresh[at];
      if (value === last) continue;
      const x = Math.max(-5, this.painter.x(series.t_ns[at]));
      // Long dashed paths are slow to draw, so of several steps in a pixel the last is drawn.
      const next = at + 1 < high ? this.painter.x(series.t_ns[at + 1]) : Infinity;
      if (Math.floor(next) === Math.floor(x)) continue;
      if (last >= 0) g.lineTo(x, y(last));
      if (value >= 0) (last >= 0 ? g.lineTo(x, y(value)) : g.moveTo(x, y(value)));
      last = value;
    }
    if (last >= 0) g.lineTo(width + 5, y(last));
    g.stroke();
    g.setLineDash([]);
  }

  // A bar whose height and colour say the state. A pixel shows the worst state in it.
  state(row, series) {
    const { context: g, from, to, width } = this.painter;
    const { start, state } = series.spans;
    const first = Math.max(0, OutcastLanes.search(start, from) - 1);
    const worst = new Int8Array(Math.ceil(width)).fill(-1);
    for (let at = first; at < start.length && start[at] < to; at++) {
      const a = Math.max(0, Math.floor(this.painter.x(start[at])));
      const end = at + 1 < start.length ? start[at + 1] : to;
      const b = Math.max(a + 1, Math.min(width, Math.ceil(this.painter.x(end))));
      for (let x = a; x < b; x++) worst[x] = Math.max(worst[x], state[at]);
    }
    g.font = "11px system-ui, sans-serif";
    g.textBaseline = "middle";
    g.textAlign = "left";
    for (let x = 0; x < width;) {
      let end = x + 1;
      while (end < width && worst[end] === worst[x]) end++;
      if (worst[x] >= 0) {
        const { name, height, colour } = OUTCAST_STATES[worst[x]];
        const tall = row.height * height;
        g.fillStyle = colour;
        g.fillRect(x, row.bottom - tall, end - x, tall);
        const inside = tall > 13;
        if (end - x > g.measureText(name).width + 8) {
          g.fillStyle = inside && name !== "Disorder" ? "#fff" : "#222";
          g.fillText(name, x + 4, inside ? row.bottom - tall / 2 : row.bottom - tall - 6);
        }
      }
      x = end;
    }
  }

  // A letter at each segment sent again, and a tick where letters would overlap.
  causes(row, series) {
    const { context: g, from, to, width } = this.painter;
    const r = this.senders.resent;
    const low = OutcastLanes.search(series.sent, from), high = OutcastLanes.search(series.sent, to);
    const taken = new Uint8Array(Math.ceil(width) + 1);
    g.font = "bold 11px system-ui, sans-serif";
    g.textBaseline = "middle";
    g.textAlign = "center";
    OUTCAST_MARKS.forEach(({ letter, colour }, kind) => {
      let end = -Infinity;
      for (let place = low; place < high; place++) {
        const at = series.resent[place];
        if (r.kind[at] !== kind) continue;
        const x = this.painter.x(r.t_ns[at]), a = Math.max(0, Math.floor(x - 7));
        if (x < end + 1) continue;
        end = x;
        g.fillStyle = g.strokeStyle = colour;
        g.lineWidth = 1.5;
        const free = !taken.subarray(a, Math.ceil(x + 7)).some(Boolean);
        if (free) {
          taken.fill(1, a, Math.ceil(x + 7));
          if (r.undone[at]) g.strokeRect(x - 6, row.bar + 1, 12, 13);
          else g.fillRect(x - 7, row.bar, 14, 15);
          g.fillStyle = r.undone[at] ? colour : "#fff";
          g.fillText(letter, x, row.bar + 8);
        } else {
          g.fillRect(x - 0.75, row.bottom - 5, 1.5, 5);
        }
      }
    });
  }

  // A cross at each drop: pale where it is among the packets above, black where it was elsewhere.
  losses(row, series) {
    const { context: g, from, to } = this.painter, l = this.senders.lost;
    const low = OutcastLanes.search(series.lostAt, from - 8 / this.painter.scale);
    const high = OutcastLanes.search(series.lostAt, to + 8 / this.painter.scale);
    const middle = row.bar + row.height / 2, arm = high - low > 300 ? 2 : 4;
    g.lineWidth = 2;
    for (const elsewhere of [false, true]) {
      g.strokeStyle = elsewhere ? "#000" : "#aaa";
      g.beginPath();
      let end = -Infinity;
      for (let place = low; place < high; place++) {
        if ((l.packet[series.lost[place]] === 0) !== elsewhere) continue;
        const x = this.painter.x(series.lostAt[place]);
        if (x < end + 1) continue;
        end = x;
        g.moveTo(x - arm, middle - arm);
        g.lineTo(x + arm, middle + arm);
        g.moveTo(x - arm, middle + arm);
        g.lineTo(x + arm, middle - arm);
      }
      g.stroke();
    }
  }

  // Lines where a timer ran out and where a recovery began; ticks if there are too many.
  lines(row, series) {
    const { context: g, from, to, width } = this.painter, r = this.senders.resent;
    const { start, state } = series.spans, timeouts = [], recoveries = [];
    const least = (2 * (to - from)) / width;
    const add = (times, time) => {
      // Several segments follow from one timeout, and marks within two pixels are one.
      if (!times.length || time - times[times.length - 1] > least) times.push(time);
    };
    for (let at = OutcastLanes.search(start, from); at < start.length && start[at] < to; at++) {
      if (OUTCAST_STATES[state[at]]?.name === "Recovery") add(recoveries, start[at]);
    }
    const end = OutcastLanes.search(series.sent, to);
    for (let at = OutcastLanes.search(series.sent, from); at < end; at++) {
      const which = series.resent[at];
      if (r.kind[which] === 0) add(timeouts, this.senders.detected(which) ?? r.t_ns[which]);
    }
    const bottom = timeouts.length + recoveries.length > width / 25 ? row.bar + 9 : row.bottom;
    for (const [times, colour, dash] of
      [[recoveries, outcastStateColour("Recovery"), [2, 3]], [timeouts, outcastStateColour("Loss"), []]]) {
      g.strokeStyle = colour;
      g.lineWidth = 1;
      g.setLineDash(dash);
      g.beginPath();
      for (const time of times) {
        const x = Math.round(this.painter.x(time)) + 0.5;
        g.moveTo(x, row.bar);
        g.lineTo(x, bottom);
      }
      g.stroke();
    }
    g.setLineDash([]);
  }

  // What the signs of a lane mean, after its name.
  legend(row) {
    const { context: g, width } = this.painter;
    g.font = OUTCAST_FONT;
    g.textBaseline = "top";
    g.textAlign = "left";
    let x = 4 + g.measureText(row.name).width + 18;
    for (const [text, paint] of this.signs(row.kind)) {
      const wide = 20 + g.measureText(text).width + 14;
      // The right end has the scale.
      if (x + wide > width - 110) return;
      paint(x, row.top + 8);
      g.fillStyle = "#444";
      g.fillText(text, x + 20, row.top + 1);
      x += wide;
    }
  }

  signs(kind) {
    const { context: g } = this.painter;
    const line = (colour, thick, dash = []) => (x, y) => {
      g.strokeStyle = colour;
      g.lineWidth = thick;
      g.setLineDash(dash);
      g.beginPath();
      g.moveTo(x, y);
      g.lineTo(x + 16, y);
      g.stroke();
      g.setLineDash([]);
    };
    const upright = (colour, dash) => (x, y) => {
      g.strokeStyle = colour;
      g.lineWidth = 1;
      g.setLineDash(dash);
      g.beginPath();
      g.moveTo(x + 8.5, y - 6);
      g.lineTo(x + 8.5, y + 6);
      g.stroke();
      g.setLineDash([]);
    };
    if (kind === "window") {
      return [
        ["cwnd", line(outcastStateColour("Recovery"), 2)],
        ["in flight", (x, y) => { g.fillStyle = "#bbb"; g.fillRect(x, y - 5, 16, 10); }],
        ["ssthresh", line(outcastStateColour("Disorder"), 1.4, [4, 3])],
        ["timeout", upright(outcastStateColour("Loss"), [])],
        ["recovery begins", upright(outcastStateColour("Recovery"), [2, 3])],
      ];
    }
    if (kind === "state") return [];
    const cross = (colour) => (x, y) => {
      g.strokeStyle = colour;
      g.lineWidth = 2;
      g.beginPath();
      g.moveTo(x + 5, y - 4);
      g.lineTo(x + 13, y + 4);
      g.moveTo(x + 5, y + 4);
      g.lineTo(x + 13, y - 4);
      g.stroke();
    };
    if (kind === "losses") {
      return [["of the packets above", cross("#aaa")], ["elsewhere", cross("#000")]];
    }
    return OUTCAST_MARKS.map(({ letter, colour, meaning }) => [meaning, (x, y) => {
      g.fillStyle = colour;
      g.fillRect(x + 2, y - 6, 13, 13);
      g.font = "bold 11px system-ui, sans-serif";
      g.fillStyle = "#fff";
      g.textAlign = "center";
      g.textBaseline = "middle";
      g.fillText(letter, x + 8.5, y + 1);
      g.textAlign = "left";
      g.textBaseline = "top";
      g.font = OUTCAST_FONT;
    }]);
  }

  // What stands at a point of the lanes, in words.
  at(row, flow, time, reach) {
    const label = this.painter.header.flows[flow].label;
    if (row.kind === "window" || row.kind === "state") {
      const words = this.senders.words(flow, time);
      return words === null ? null : { lines: [label, ...words.split(", ")] };
    }
    const series = this.senders.of(flow), sent = row.kind === "causes";
    const times = sent ? series.sent : series.lostAt;
    const low = OutcastLanes.search(times, time - reach);
    const high = OutcastLanes.search(times, time + reach);
    if (low === high) return null;
    if (high - low > 5) {
      return { lines: [`${high - low} ${sent ? "segments sent again" : "drops"}`,
        "zoom in for each"] };
    }
    let best = low;
    for (let at = low; at < high; at++) {
      if (Math.abs(times[at] - time) < Math.abs(times[best] - time)) best = at;
    }
    const ms = (times[best] / 1e6).toFixed(6) + " ms";
    const which = (sent ? series.resent : series.lost)[best];
    const found = { lines: sent ? [`sent again at ${ms}`, this.senders.cause(which)]
      : [`dropped at ${ms}`, this.senders.loss(which)] };
    const { packet } = sent ? this.senders.resent : this.senders.lost;
    if (packet[which]) found.packet = packet[which] - 1;
    return found;
  }
}
