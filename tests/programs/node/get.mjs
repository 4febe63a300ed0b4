// Asks for a URL by Node's own fetch, and says how long that took.
const begin = process.hrtime.bigint();
const answer = await fetch(process.argv[2]);
const body = await answer.arrayBuffer();
console.log(`${body.byteLength} bytes in ${(process.hrtime.bigint() - begin) / 1000n} us`);
process.exitCode = answer.ok ? 0 : 1;
