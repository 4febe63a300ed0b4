"use strict";
// The packets of a run, arranged for drawing any interval of time at once.
//
// A track is what happened in one lane to packets of one colour: rows in the order of time. How
// many fall into each column of pixels follows from two searches, so that a frame costs the
// picture's width times the number of tracks, however many packets there are.

const OUTCAST_BLOCK = 64;

class OutcastLanes {
  constructor(header, tables) {
    this.header = header;
    this.packets = tables.packets;
    this.chains = tables.chains;
    this.again = tables.again;
    this.rows = this.packets.rows;
    this.decode();
    this.index();
  }

  decode() {
    const p = this.packets, n = this.rows, first = this.header.first_ns;
    this.colour = new Uint8Array(n);
    this.out = new Float64Array(n);
    this.enters = new Float64Array(n);
    this.seq = new Float64Array(n);
    const expected = new Float64Array(this.header.flows.length);
    const colours = this.header.flows.map((flow) => flow.colour);
    for (let i = 0; i < n; i++) {
      p.t_in[i] += first;
      const t = p.t_in[i];
      this.out[i] = p.stays[i] ? t + p.stays[i] - 1 : NaN;
      this.enters[i] = t + p.enters[i];
      const flow = p.flow[i];
      this.colour[i] = colours[flow];
      const seq = (expected[flow] + p.seq[i] + 8589934592) % 4294967296;
      this.seq[i] = seq;
      expected[flow] = seq + p.payload[i];
    }
    const c = this.chains;
    for (let i = 0; i < c.rows; i++) c.t_start[i] += first;
    const again = this.again;
    again.later = Uint32Array.from(again.row, (row, at) => row + again.after[at]);
    again.byLater = again.later.map((_, at) => at).sort((a, b) => again.later[a] - again.later[b]);
    again.laterSorted = again.byLater.map((at) => again.later[at]);
    const end = n ? Math.max(p.t_in[n - 1], this.header.duration_ns) : this.header.duration_ns;
    const begin = n ? Math.min(p.t_in[0], 0) : 0;
    this.begin = begin;
    this.end = end + (end - Math.max(begin, 0)) * 0.01;
    // Connections are opened some time before the traffic starts; the whole run is shown from
    // its start, and what was before by zooming out further.
    this.home = Math.max(begin, -0.01 * this.header.duration_ns);
  }

  // Builds the tracks: {kind, lane, colour, rows, time, weights (sums, or null)}.
  index() {
    const p = this.packets, n = this.rows;
    const dropped = this.header.verdicts.indexOf("dropped");
    const colours = this.header.palette.length;
    const lanes = Math.max(this.header.inputs.length, this.header.outputs.length);
    const kinds = ["in", "drop", "out"];
    const groups = [];
    const group = (kind, lane, colour) => {
      const key = (kind * lanes + lane) * colours + colour;
      return groups[key] || (groups[key] = { kind: kinds[kind], lane, colour, count: 0 });
    };
    const ofInput = (i) => group(p.verdict[i] === dropped ? 1 : 0, p.lane[i], this.colour[i]);
    const left = (i) => p.stays[i] && p.output[i];
    for (let i = 0; i < n; i++) {
      ofInput(i).count++;
      if (left(i)) group(2, p.output[i] - 1, this.colour[i]).count++;
    }
    for (const track of groups.filter(Boolean)) {
      track.rows = new Uint32Array(track.count);
      track.time = new Float64Array(track.count);
      track.sums = p.weight && track.kind !== "drop" ? new Float64Array(track.count + 1) : null;
      track.count = 0;
    }
    const push = (track, row, time) => {
      const at = track.count++;
      track.rows[at] = row;
      track.time[at] = time;
      if (track.sums) track.sums[at + 1] = track.sums[at] + p.weight[row];
    };
    for (let i = 0; i < n; i++) push(ofInput(i), i, p.t_in[i]);
    for (let k = 0; k < n; k++) {
      const row = p.order[k];
      if (left(row)) push(group(2, p.output[row] - 1, this.colour[row]), row, this.out[row]);
    }
    this.tracks = groups.filter(Boolean).sort((a, b) => a.lane - b.lane || a.colour - b.colour);
    const c = this.chains;
    this.spans = this.header.inputs.map((_, lane) => {
      const places = this.blackouts(lane);
      return {
        start: Float64Array.from(places, (i) => c.t_start[i]),
        end: Float64Array.from(places, (i) => c.t_start[i] + c.lasts[i]),
      };
    });
    this.queues = this.header.outputs.map((_, output) => this.queueOf(output));
  }

  // The packet that brought the first byte of this one's data again; null if none did.
  following(row) {
    const { row: rows, later } = this.again;
    const at = OutcastLanes.search(rows, row);
    return rows[at] === row ? later[at] : null;
  }

  // Whether the kernel's events show which packet brought this one's data again.
  known(row) {
    const at = OutcastLanes.search(this.again.row, row);
    return this.again.row[at] === row && this.again.known[at] === 1;
  }

  // The packet whose data this one brought again: the last one if there are several, or null.
  preceding(row) {
    const { row: rows, byLater, laterSorted } = this.again;
    const at = OutcastLanes.search(laterSorted, row + 1) - 1;
    return at >= 0 && laterSorted[at] === row ? rows[byLater[at]] : null;
  }

  // [earlier, later] of the packets with the same data just before and after this one.
  pairsOf(row) {
    const before = this.preceding(row), after = this.following(row);
    return [[before, row], [row, after]].filter(([a, b]) => a !== null && b !== null);
  }

  dropped(row) {
    return this.packets.verdict[row] === this.header.verdicts.indexOf("dropped");
  }

  // What an output's queue held: `found` just before, `after` just after each arrival.
  queueOf(output) {
    const p = this.packets;
    const dropped = this.header.verdicts.indexOf("dropped");
    const known = (i) => p.output[i] === output + 1 && p.found[i];
    let count = 0;
    for (let i = 0; i < this.rows; i++) if (known(i)) count++;
    const rows = new Uint32Array(count);
    count = 0;
    for (let i = 0; i < this.rows; i++) if (known(i)) rows[count++] = i;
    const time = new Float64Array(rows.length);
    const found = new Int32Array(rows.length), after = new Int32Array(rows.length);
    rows.forEach((row, at) => {
      time[at] = this.enters[row];
      found[at] = p.found[row] - 1;
      after[at] = found[at] + (p.verdict[row] === dropped ? 0 : p.frame[row]);
    });
    const leaving = this.tracks.filter((track) => track.kind === "out" && track.lane === output);
    // Least and most of each block of arrivals, so that a wide column need not look at them all.
    const blocks = Math.ceil(rows.length / OUTCAST_BLOCK);
    const low = new Int32Array(blocks).fill(2147483647), high = new Int32Array(blocks);
    let most = 0;
    for (let at = 0; at < rows.length; at++) {
      const block = Math.floor(at / OUTCAST_BLOCK);
      if (found[at] < low[block]) low[block] = found[at];
      if (after[at] > high[block]) high[block] = after[at];
      if (after[at] > most) most = after[at];
    }
    return { rows, time, found, after, leaving, low, high, most };
  }

  // The first place in an ascending array with a value not below `wanted`.
  static search(values, wanted, low = 0, high = values.length) {
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] < wanted) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // The least and the most that a queue held at the arrivals from place `a` up to `b`.
  static extremes(queue, a, b) {
    let low = 2147483647, high = 0, at = a;
    while (at < b) {
      const whole = at % OUTCAST_BLOCK === 0 && at + OUTCAST_BLOCK <= b;
      const block = at / OUTCAST_BLOCK;
      low = Math.min(low, whole ? queue.low[block] : queue.found[at]);
      high = Math.max(high, whole ? queue.high[block] : queue.after[at]);
      at += whole ? OUTCAST_BLOCK : 1;
    }
    return [low, high];
  }

  // The first place from `at` on with a value not below `bound`, near which it is looked for.
  static onward(values, bound, at, end) {
    let step = 1;
    while (at + step < end && values[at + step] < bound) step *= 2;
    return OutcastLanes.search(values, bound, at + (step >> 1), Math.min(end, at + step));
  }

  // Steps [time, bytes] of a queue within [from, to], each arrival and each departure one.
  steps(output, from, to) {
    const queue = this.queues[output], p = this.packets;
    const low = Math.max(0, OutcastLanes.search(queue.time, from) - 1);
    const high = Math.min(queue.rows.length, OutcastLanes.search(queue.time, to) + 1);
    if (low >= high) return [];
    const leaves = [];
    const end = high < queue.rows.length ? queue.time[high] : to;
    for (const track of queue.leaving) {
      let at = OutcastLanes.search(track.time, queue.time[low]);
      for (; at < track.count && track.time[at] <= end; at++) {
        leaves.push([track.time[at], p.frame[track.rows[at]], track.rows[at]]);
      }
    }
    leaves.sort((a, b) => a[0] - b[0]);
    const steps = [];
    let next = 0;
    for (let at = low; at < high; at++) {
      let held = queue.after[at];
      steps.push([queue.time[at], queue.found[at]], [queue.time[at], held]);
      const until = at + 1 < queue.rows.length ? queue.time[at + 1] : end;
      // What the next arrival found is known, so departures never add up to an error.
      // A packet that finds an empty queue leaves as it arrives, hence the comparison of rows.
      while (next < leaves.length && leaves[next][0] <= until &&
             leaves[next][2] <= queue.rows[at]) {
        held -= leaves[next][1];
        if (held >= 0) steps.push([leaves[next][0], held]);
        next++;
      }
    }
    return steps;
  }

  // Packets of a lane's kind within [from, to): how many they stand for.
  count(kind, from, to, lane = null) {
    let sum = 0;
    for (const track of this.tracks) {
      if (track.kind !== kind || (lane !== null && track.lane !== lane)) continue;
      const a = OutcastLanes.search(track.time, from), b = OutcastLanes.search(track.time, to);
      sum += track.sums ? track.sums[b] - track.sums[a] : b - a;
    }
    return sum;
  }

  // Blackouts: chains while which others got through. Places in `chains`, of one lane or all.
  blackouts(lane = null) {
    const c = this.chains, found = [];
    for (let i = 0; i < c.rows; i++) {
      if (c.through[i] > 0 && (lane === null || c.lane[i] === lane)) found.push(i);
    }
    return found;
  }

  // The one with most drops; of several the shortest, of these the first.
  longest(lane = null) {
    const c = this.chains;
    let best = null;
    for (const i of this.blackouts(lane)) {
      if (best === null || c.drops[i] > c.drops[best] ||
          (c.drops[i] === c.drops[best] && c.lasts[i] < c.lasts[best])) best = i;
    }
    return best;
  }
}
