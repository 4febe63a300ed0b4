"use strict";
// Draws an interval of time: a lane per input port, one per output, and the queues beneath.
//
// No more packets in view than pixels: a mark for each. Else how many there are in each column of
// pixels, stacked by colour, written into the pixels directly. A drop is never left out: a column
// with one in it shows it over the whole height of the drops' row.

const OUTCAST_FONT = "12px system-ui, sans-serif";

class OutcastPainter {
  constructor(canvas, lanes, senders) {
    this.canvas = canvas;
    this.lanes = lanes;
    this.header = lanes.header;
    this.senderLanes = senders && new OutcastSenderLanes(this, senders);
    this.context = canvas.getContext("2d");
    this.scratch = document.createElement("canvas");
    this.words = this.header.palette.map((hex) => {
      const value = parseInt(hex.slice(1), 16);
      // Bytes of a pixel are red, green, blue, opacity; read as a little-endian word.
      return ((value & 255) << 16) | (value & 0xff00) | (value >> 16);
    });
    this.arrange();
  }

  // Where everything stands, from top to bottom, in CSS pixels.
  arrange() {
    const { inputs, outputs } = this.header;
    const tall = Math.max(12, Math.min(30, Math.floor(300 / Math.max(1, inputs.length))));
    const label = 16;
    let y = 24;
    this.rowsOfLanes = [];
    inputs.forEach((input, lane) => {
      const drops = Math.max(8, Math.round(tall / 2));
      this.rowsOfLanes.push({
        kind: "in", lane, name: "in by " + input.label, top: y, bar: y + label, height: tall,
        drop: y + label + tall + 2, dropHeight: drops, bottom: y + label + tall + 2 + drops,
      });
      y += label + tall + 2 + drops + 6;
    });
    outputs.forEach((output, lane) => {
      this.rowsOfLanes.push({
        kind: "out", lane, name: "out by " + output.port, top: y, bar: y + label, height: tall,
        bottom: y + label + tall,
      });
      y += label + tall + 6;
    });
    outputs.forEach((output, lane) => {
      this.rowsOfLanes.push({
        kind: "queue", lane, name: "queue of " + output.port, top: y, bar: y + label,
        height: 96, bottom: y + label + 96,
      });
      y += label + 96 + 8;
    });
    this.textBottom = y;
    if (this.senderLanes) y = this.senderLanes.arrange(this.rowsOfLanes, y);
    this.height = y;
    this.canvas.style.height = y + "px";
  }

  fit() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const width = Math.max(50, Math.round(this.canvas.clientWidth));
    if (this.width !== width || this.ratio !== ratio) {
      this.width = width;
      this.ratio = ratio;
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(this.height * ratio);
    }
  }

  // `focus`: {flow, tracks, packet, chain, time}, each null where none is chosen, and `sender`, the
  // flow whose window is shown.
  draw(from, to, focus) {
    this.fit();
    const g = this.context;
    this.from = from;
    this.to = to;
    this.scale = this.width / (to - from);
    g.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    g.fillStyle = "#fff";
    g.fillRect(0, 0, this.width, this.height);
    const p = this.lanes.packets;
    const low = OutcastLanes.search(p.t_in, from, 0, p.rows);
    const high = OutcastLanes.search(p.t_in, to, 0, p.rows);
    // With more packets than pixels, marks would hide one another.
    this.single = high - low <= this.width;
    this.shown = high - low;
    this.axis();
    for (const row of this.rowsOfLanes) {
      if (row.kind === "in") this.blackouts(row, focus.chain);
      if (row.kind === "queue") this.queue(row);
      else if (row.lane < 0) this.senderLanes.draw(row, focus.sender);
      else if (this.single) this.marks(row, focus);
      else this.columns(row, focus);
      g.fillStyle = "#222";
      g.font = OUTCAST_FONT;
      g.textBaseline = "top";
      g.textAlign = "left";
      g.fillText(row.name, 4, row.top + 1);
      g.fillStyle = "#bbb";
      g.fillRect(0, row.bottom + 1, this.width, 1);
    }
    this.events();
    if (focus.time !== null) this.cursor(focus.time);
    if (focus.packet !== null) {
      for (const [earlier, later] of this.lanes.pairsOf(focus.packet)) this.arrow(earlier, later);
      this.ring(focus.packet);
    }
  }

  // The middle of a packet's mark in the lane where it came in.
  markOf(packet) {
    const p = this.lanes.packets;
    const row = this.rowsOfLanes.find((one) => one.kind === "in" && one.lane === p.lane[packet]);
    const y = this.lanes.dropped(packet) ? row.drop + row.dropHeight / 2 : row.bar + row.height / 2;
    return { x: this.x(p.t_in[packet]), y };
  }

  // A line over all lanes at a step of the walk.
  cursor(time) {
    const g = this.context, x = this.x(time);
    if (x < 0 || x > this.width) return;
    g.fillStyle = "#000";
    g.fillRect(Math.round(x), 16, 1, this.height - 16);
    g.beginPath();
    g.moveTo(x - 5, 16);
    g.lineTo(x + 6, 16);
    g.lineTo(x + 0.5, 23);
    g.fill();
  }

  // From a packet to the one that brought its data again.
  arrow(earlier, later) {
    const g = this.context, a = this.markOf(earlier), b = this.markOf(later);
    if (b.x < -20 || a.x > this.width + 20) return;
    const reach = Math.min(46, Math.abs(b.x - a.x) / 3), side = b.x - a.x < 16 ? 0 : 8;
    const lift = Math.max(10, Math.min(28, reach));
    g.strokeStyle = g.fillStyle = "#000";
    g.lineWidth = 1.5;
    g.setLineDash([5, 3]);
    g.beginPath();
    g.moveTo(a.x + side, a.y);
    g.bezierCurveTo(a.x + reach, a.y - lift, b.x - reach, b.y - lift, b.x - side, b.y);
    g.stroke();
    g.setLineDash([]);
    g.beginPath();
    g.moveTo(b.x - side, b.y);
    g.lineTo(b.x - side - 7, b.y - 6);
    g.lineTo(b.x - side - 8, b.y + 2);
    g.fill();
  }

  // A dashed line with its text at each event, and a grey band while a link was down.
  events() {
    const g = this.context;
    // Texts stand at three heights in turn, because those of near events would overlap.
    for (const [place, event] of this.header.events.entries()) {
      const x = this.x(event.t_ns);
      if (event.until_ns !== null) {
        const until = Math.min(this.width, this.x(event.until_ns));
        g.fillStyle = "rgba(110, 110, 110, 0.18)";
        g.fillRect(Math.max(0, x), 18, Math.max(0, until - Math.max(0, x)), this.height - 18);
      }
      if (x < 0 || x > this.width) continue;
      g.strokeStyle = "#555";
      g.lineWidth = 1;
      g.setLineDash([4, 3]);
      g.beginPath();
      g.moveTo(Math.round(x) + 0.5, 18);
      g.lineTo(Math.round(x) + 0.5, this.height);
      g.stroke();
      g.setLineDash([]);
      g.font = OUTCAST_FONT;
      const wide = g.measureText(event.text).width;
      const left = x + 4 + wide > this.width ? x - 4 - wide : x + 4;
      const top = this.textBottom - 14 * (1 + place % 3);
      g.fillStyle = "rgba(255, 255, 255, 0.85)";
      g.fillRect(left - 1, top, wide + 2, 13);
      g.fillStyle = "#333";
      g.textAlign = "left";
      g.textBaseline = "top";
      g.fillText(event.text, left, top + 1);
    }
  }

  x(time) {
    return (time - this.from) * this.scale;
  }

  axis() {
    const g = this.context;
    const least = (this.to - this.from) / Math.max(2, Math.floor(this.width / 95));
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= least * 0.999);
    const format = outcastTime(step, Math.max(Math.abs(this.from), Math.abs(this.to)));
    g.font = OUTCAST_FONT;
    g.textBaseline = "top";
    for (let k = Math.ceil(this.from / step); k * step <= this.to; k++) {
      const x = this.x(k * step);
      g.fillStyle = "#e6e6e6";
      g.fillRect(Math.round(x), 18, 1, this.height - 18);
      const text = format(k * step);
      const half = g.measureText(text).width / 2;
      if (x - half < 0 || x + half > this.width) continue;
      g.fillStyle = "#333";
      g.textAlign = "center";
      g.fillText(text, x, 2);
    }
  }

  blackouts(row, chosen) {
    const g = this.context, c = this.lanes.chains;
    g.fillStyle = "#f4f4f4";
    g.fillRect(0, row.drop, this.width, row.dropHeight);
    g.fillStyle = "#ffdccc";
    // Those of one lane do not overlap; what touches in the picture is filled at once.
    const { start, end } = this.lanes.spans[row.lane];
    let left = 0, right = -1;
    for (let i = OutcastLanes.search(end, this.from); i < start.length && start[i] < this.to; i++) {
      const a = Math.max(-2, this.x(start[i]) - 1);
      const b = Math.min(this.width + 2, this.x(end[i]) + 1);
      if (a <= right + 0.5) {
        right = b;
        continue;
      }
      if (right >= left) g.fillRect(left, row.bar, right - left, row.bottom - row.bar);
      left = a;
      right = b;
    }
    if (right >= left) g.fillRect(left, row.bar, right - left, row.bottom - row.bar);
    if (chosen !== null && c.lane[chosen] === row.lane) {
      const a = this.x(c.t_start[chosen]), b = this.x(c.t_start[chosen] + c.lasts[chosen]);
      g.strokeStyle = "#000";
      g.lineWidth = 1.5;
      g.strokeRect(a - 4, row.bar - 1, Math.max(4, b - a + 8), row.bottom - row.bar + 1);
    }
  }

  // A mark for each packet: a bar where it got through, a cross where it was dropped.
  marks(row, focus) {
    const g = this.context, verdict = this.lanes.packets.verdict;
    const unknown = this.header.verdicts.indexOf("unknown");
    const packet = 12112 * (1e9 / (this.rate() || 1e9));
    const wide = Math.max(1.5, Math.min(9, packet * this.scale * 0.7));
    const margin = 12 / this.scale;
    for (const track of this.lanes.tracks) {
      const drop = track.kind === "drop";
      if (track.lane !== row.lane || (row.kind === "out") !== (track.kind === "out")) continue;
      g.fillStyle = g.strokeStyle = this.header.palette[track.colour];
      let at = OutcastLanes.search(track.time, this.from - margin);
      for (; at < track.count && track.time[at] <= this.to + margin; at++) {
        const x = this.x(track.time[at]);
        const packetRow = track.rows[at];
        g.globalAlpha =
          focus.flow === null || this.lanes.packets.flow[packetRow] === focus.flow ? 1 : 0.15;
        if (!drop && verdict[packetRow] === unknown) {
          g.lineWidth = 1;
          g.strokeRect(x - wide / 2 + 0.5, row.bar + 0.5, Math.max(2, wide - 1), row.height - 1);
        } else if (!drop) {
          g.fillRect(x - wide / 2, row.bar, wide, row.height);
        } else if (wide > 3.5) {
          const middle = row.drop + row.dropHeight / 2, arm = Math.min(row.dropHeight / 2, 5);
          g.lineWidth = 2.2;
          g.beginPath();
          g.moveTo(x - arm, middle - arm);
          g.lineTo(x + arm, middle + arm);
          g.moveTo(x - arm, middle + arm);
          g.lineTo(x + arm, middle - arm);
          g.stroke();
        } else {
          g.fillRect(x - 1, row.drop, 2, row.dropHeight);
        }
      }
    }
    g.globalAlpha = 1;
  }

  rate() {
    return this.header.outputs[0] && this.header.outputs[0].rate_bps;
  }

  columns(row, focus) {
    const kinds = row.kind === "out" ? [["out", row.bar, row.height]]
      : [["in", row.bar, row.height], ["drop", row.drop, row.dropHeight]];
    for (const [kind, top, height] of kinds) {
      const pale = focus.flow !== null;
      const of = (tracks) => tracks.filter((one) => one.kind === kind && one.lane === row.lane);
      this.stack(of(this.lanes.tracks), kind, top, height, pale ? 0.2 : 1);
      if (pale) this.stack(of(focus.tracks), kind, top, height, 1);
    }
  }

  // Stacks the tracks' numbers of packets in each column of device pixels.
  stack(tracks, kind, top, height, opacity) {
    if (!tracks.length) return;
    const g = this.context;
    const width = this.canvas.width;
    const y = Math.round(top * this.ratio), tall = Math.round(height * this.ratio);
    const image = g.createImageData(width, tall);
    const pixels = new Uint32Array(image.data.buffer);
    const opaque = (Math.round(opacity * 255) << 24) >>> 0;
    const each = (this.to - this.from) / width;
    const packet = 12112 * (1e9 / (this.rate() || 1e9));
    const full = Math.max(1, each / packet);
    const counts = tracks.map((track) => this.perColumn(track, width, each));
    for (let x = 0; x < width; x++) {
      let total = 0;
      for (const count of counts) total += count[x];
      if (!total) continue;
      // The root keeps a few packets visible beside thousands.
      const share = kind === "drop" ? 1 : Math.min(1, Math.sqrt(total / full));
      const reach = Math.max(2, Math.round(tall * share));
      let done = 0, sum = 0;
      for (let k = 0; k < counts.length; k++) {
        if (!counts[k][x]) continue;
        sum += counts[k][x];
        const until = Math.round((reach * sum) / total);
        const word = (this.words[tracks[k].colour] | opaque) >>> 0;
        for (let level = done; level < until; level++) {
          pixels[(tall - 1 - level) * width + x] = word;
        }
        done = until;
      }
    }
    // By way of a canvas of its own, since putImageData would wipe out what is beneath.
    const scratch = this.scratch;
    if (scratch.width !== width || scratch.height !== tall) {
      scratch.width = width;
      scratch.height = tall;
    }
    scratch.getContext("2d").putImageData(image, 0, 0);
    g.drawImage(scratch, 0, y / this.ratio, this.width, tall / this.ratio);
  }

  perColumn(track, width, each) {
    const counts = new Float64Array(width);
    const { time, sums } = track, end = track.count;
    let at = OutcastLanes.search(time, this.from, 0, end);
    const stop = OutcastLanes.search(time, this.to, at, end);
    while (at < stop) {
      // Columns without a packet are passed over at once.
      const x = Math.min(width - 1, Math.floor((time[at] - this.from) / each));
      const bound = x === width - 1 ? this.to : this.from + (x + 1) * each;
      const next = Math.max(at + 1, OutcastLanes.onward(time, bound, at, stop));
      counts[x] += sums ? sums[next] - sums[at] : next - at;
      at = next;
    }
    return counts;
  }

  queue(row) {
    const g = this.context, queue = this.lanes.queues[row.lane];
    const limit = this.header.outputs[row.lane].limit_bytes;
    const top = Math.max(limit || 0, queue.most) * 1.12 || 1;
    const y = (bytes) => row.bottom - (bytes / top) * row.height;
    const doubt = limit && queue.most > limit ? this.header.outputs[row.lane].doubt_bytes : 0;
    if (doubt) {
      g.fillStyle = "#e6e6e6";
      g.fillRect(0, y(limit + doubt), this.width, y(limit) - y(limit + doubt));
    }
    g.font = OUTCAST_FONT;
    g.textBaseline = "bottom";
    g.textAlign = "right";
    if (this.single) {
      const steps = this.lanes.steps(row.lane, this.from, this.to);
      g.beginPath();
      g.moveTo(-5, y(0));
      let last = 0;
      for (const [time, bytes] of steps) {
        const x = Math.max(-5, Math.min(this.width + 5, this.x(time)));
        g.lineTo(x, y(last));
        g.lineTo(x, y(bytes));
        last = bytes;
      }
      g.lineTo(this.width + 5, y(last));
      g.lineTo(this.width + 5, y(0));
      g.fillStyle = "#dbe7f0";
      g.fill();
      g.strokeStyle = "#1f4e79";
      g.lineWidth = 1.2;
      g.stroke();
    } else {
      this.band(row, queue, y);
    }
    const peak = limit || queue.most;
    if (limit) {
      g.setLineDash([6, 4]);
      g.strokeStyle = "#a33b00";
      g.lineWidth = 1;
      g.beginPath();
      g.moveTo(0, y(limit));
      g.lineTo(this.width, y(limit));
      g.stroke();
      g.setLineDash([]);
    }
    if (peak) {
      let text = (limit ? "limit " : "most ") + outcastBytesText(peak);
      if (doubt) text += " (grey: uncertain by " + outcastBytesText(doubt) + ")";
      g.fillStyle = "#ffffffd0";
      g.fillRect(this.width - g.measureText(text).width - 8, y(peak) - 16, 400, 15);
      g.fillStyle = "#7a2c00";
      g.fillText(text, this.width - 4, y(peak) - 2);
    }
  }

  // Least and most that the queue held in each column.
  band(row, queue, y) {
    const g = this.context, each = (this.to - this.from) / this.width;
    let at = OutcastLanes.search(queue.time, this.from);
    g.fillStyle = "#5b8db8";
    let held = at ? queue.after[at - 1] : 0;
    for (let x = 0; x < this.width && at < queue.time.length; x++) {
      const bound = this.from + (x + 1) * each;
      if (queue.time[at] >= bound) continue;
      const next = Math.max(at + 1, OutcastLanes.onward(queue.time, bound, at, queue.time.length));
      const [low, high] = OutcastLanes.extremes(queue, at, next);
      const least = Math.min(low, held, high);
      held = queue.after[next - 1];
      at = next;
      g.fillRect(x, y(high), 1, Math.max(1.5, y(least) - y(high)));
    }
  }

  ring(packet) {
    const g = this.context, p = this.lanes.packets;
    const dropped = this.header.verdicts[p.verdict[packet]] === "dropped";
    for (const row of this.rowsOfLanes) {
      const isIn = row.kind === "in" && row.lane === p.lane[packet];
      const isOut = row.kind === "out" && row.lane === p.output[packet] - 1 && p.stays[packet];
      if (!isIn && !isOut) continue;
      const x = this.x(isOut ? this.lanes.out[packet] : p.t_in[packet]);
      const top = isIn && dropped ? row.drop : row.bar;
      const height = isIn && dropped ? row.dropHeight : row.height;
      g.strokeStyle = "#000";
      g.lineWidth = 2;
      g.strokeRect(x - 7, top - 1, 14, height + 2);
    }
  }
}

// A function that writes times with as many decimals as steps of `step` ns need.
function outcastTime(step, greatest) {
  const [unit, name] = greatest >= 1e9 && step >= 1e6 ? [1e9, "s"]
    : greatest >= 1e6 || step >= 1e5 ? [1e6, "ms"] : [1e3, "µs"];
  const decimals = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / unit) - 1e-9)));
  return (time) => (time / unit).toFixed(decimals) + " " + name;
}

function outcastBytesText(bytes) {
  return bytes >= 1024 ? (bytes / 1024).toFixed(bytes % 1024 ? 1 : 0) + " KiB" : bytes + " B";
}
