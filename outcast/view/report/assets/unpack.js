"use strict";
// Reads what outcast/view/report/packed.py wrote: columns as byte planes, deflated, in base64.

function outcastBytes(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function outcastInflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Numbers below 2^53; the bit operators of JavaScript end at 2^32, hence the arithmetic.
function outcastColumn(bytes, at, rows, width, encoding) {
  const plain = encoding === "plain";
  const Kind = plain && width === 1 ? Uint8Array : plain && width === 2 ? Uint16Array
    : plain && width <= 4 ? Uint32Array : Float64Array;
  const values = new Kind(rows);
  let factor = 1;
  for (let plane = 0; plane < width; plane++) {
    const base = at + plane * rows;
    for (let i = 0; i < rows; i++) values[i] += bytes[base + i] * factor;
    factor *= 256;
  }
  if (plain) return values;
  let sum = 0;
  for (let i = 0; i < rows; i++) {
    const code = values[i];
    const half = Math.floor(code / 2);
    const value = code - 2 * half ? -half - 1 : half;
    sum = encoding === "delta" ? sum + value : value;
    values[i] = sum;
  }
  return values;
}

async function outcastTables(described, text) {
  const bytes = await outcastInflate(outcastBytes(text));
  const tables = {};
  let at = 0;
  for (const [name, table] of Object.entries(described)) {
    const made = { rows: table.rows };
    for (const column of table.columns) {
      made[column.name] = outcastColumn(bytes, at, table.rows, column.width, column.encoding);
      at += column.width * table.rows;
    }
    tables[name] = made;
  }
  return tables;
}
