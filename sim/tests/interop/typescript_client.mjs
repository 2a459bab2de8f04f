// Drives an MCP server with the TypeScript SDK, at revision 2026-07-28.
//
// usage: node typescript_client.mjs SERVER [ARG...]
//        node typescript_client.mjs http://HOST:PORT/PATH
//
// The arguments are the command line of a server over stdio, or where one serves
// over HTTP. Each check that holds prints `ok NAME`; the first one that does not
// prints `FAILED NAME: why` and the exit code is 1. Over HTTP, whoever started this
// kills the server at the line `kill`, starts it at the line `start`, and answers
// each with a line. `cargo xtask verify --only interop` installs the SDK and runs
// this.

import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { createInterface } from 'node:readline';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const REVISION = '2026-07-28';
const TIMEOUT_MS = 30_000;
// The SDK signals a server that has not left this long after its stdin closed.
const GRACE_MS = 2_000;
// The shell keeps the exit status, which the SDK does not tell: no file means
// that the server was killed together with its shell.
const KEEP_STATUS = 'file=$1; shift; "$@"; echo $? >"$file"';
// Which process to kill, the SDK does not tell either.
const KEEP_PID = 'echo $$ >"$1"; shift; exec "$@"';
const AT_ONCE = 200;

class CheckFailed extends Error {}

function check(name, holds, why) {
  if (!holds) throw new CheckFailed(`${name}: ${why}`);
  console.log(`ok ${name}`);
}

// The reservation id in a result: in its structured content, else in its text.
function reservationOf(result) {
  const content = result.structuredContent ?? JSON.parse(result.content[0].text);
  const found = content.reservationId ?? content.reservation_id;
  if (!found) throw new CheckFailed(`reserve_inventory: no reservationId in ${JSON.stringify(content)}`);
  return found;
}

function call(client, name, args, options = {}) {
  return client.callTool({ name, arguments: args }, { timeout: TIMEOUT_MS, ...options });
}

const count = (client, to, options) => call(client, 'slow_count', { to, interval_ms: 20 }, options);

// The tools that are called below are there.
async function checkTools(client) {
  const tools = (await client.listTools()).tools.map((tool) => tool.name);
  const wanted = ['reserve_inventory', 'slow_count'];
  check('tools_are_listed', wanted.every((name) => tools.includes(name)), `got ${tools}`);
}

// The same key and the same arguments give one reservation.
async function checkKeyedCall(client) {
  const args = { sku: 'widget', quantity: 1, tenant: 'acme', idempotencyKey: 'order-7' };
  const first = await call(client, 'reserve_inventory', args);
  check('reserve_answers', !first.isError, `tool error: ${JSON.stringify(first.content)}`);
  const second = await call(client, 'reserve_inventory', args);
  const [one, two] = [reservationOf(first), reservationOf(second)];
  check('same_key_same_reservation', one === two, `${one} then ${two}`);
  const other = await call(client, 'reserve_inventory', { ...args, idempotencyKey: 'order-8' });
  check('other_key_other_reservation', reservationOf(other) !== one, `both ${one}`);
  return one;
}

// Progress arrives and strictly increases.
async function checkProgress(client) {
  const seen = [];
  const result = await count(client, 5, { onprogress: ({ progress }) => seen.push(progress) });
  check('slow_count_answers', !result.isError, `tool error: ${JSON.stringify(result.content)}`);
  check('progress_arrives', seen.length > 0, 'none arrived');
  const rising = seen.every((value, i) => i === 0 || seen[i - 1] < value);
  check('progress_strictly_increases', rising, seen.join(', '));
}

// A call cancelled in the middle settles at once, and the next one is served.
async function checkCancellation(client) {
  const controller = new AbortController();
  let cancelledAt;
  const onprogress = ({ progress }) => {
    if (cancelledAt === undefined && progress >= 2) {
      cancelledAt = performance.now();
      controller.abort('enough');
    }
  };
  let outcome;
  try {
    outcome = await count(client, 1000, { onprogress, signal: controller.signal });
  } catch (error) {
    outcome = error;
  }
  const took = performance.now() - cancelledAt;
  check('cancelled_mid_call', cancelledAt !== undefined, `no progress, so nothing to cancel: ${outcome}`);
  check('call_settled_as_cancelled', isAbort(outcome), `${outcome}`);
  check('cancel_settles_at_once', took < 2_000, `${took.toFixed(0)} ms`);
  const result = await count(client, 2);
  check('next_call_is_served', !result.isError, `tool error: ${JSON.stringify(result.content)}`);
}

// The SDK rejects with the signal's own reason; an answer of the peer has a number as its code.
function isAbort(outcome) {
  return outcome instanceof Error && typeof outcome.code !== 'number' && outcome.message.includes('enough');
}

// Calls at once, each with an answer of its own.
async function checkMany(client) {
  const one = async (_, i) => {
    const result = await call(client, 'slow_count', { to: i + 1, interval_ms: 0 });
    return result.content[0].text === `counted to ${i + 1}`;
  };
  const own = await Promise.all(Array.from({ length: AT_ONCE }, one));
  check('two_hundred_at_once', own.every(Boolean), `the first wrong one is ${own.indexOf(false) + 1}`);
}

// A client of the server, which a script starts that leaves something in a file.
async function connect(script, file, command) {
  const transport = new StdioClientTransport({ command: '/bin/sh', args: ['-c', script, 'sh', file, ...command] });
  const client = negotiated();
  await client.connect(transport);
  return client;
}

// A client that is not connected yet.
function negotiated() {
  return new Client({ name: 'interop', version: '1.0.0' }, { versionNegotiation: { mode: { pin: REVISION } } });
}

// A server killed in the middle of a call: the call fails, nobody waits.
async function checkKill(command, scratch) {
  const file = join(scratch, 'pid');
  const client = await connect(KEEP_PID, file, command);
  let killed = false;
  const onprogress = () => {
    if (killed) return;
    killed = true;
    process.kill(Number(readFileSync(file, 'utf8')), 'SIGKILL');
  };
  let outcome;
  try {
    outcome = await count(client, 1000, { onprogress });
  } catch (error) {
    outcome = error;
  } finally {
    await client.close();
  }
  check('killed_mid_call', killed, `no progress, so nothing to kill: ${outcome}`);
  const failed = outcome instanceof Error && !/timed out/i.test(outcome.message);
  check('kill_9_fails_the_pending_call', failed, `${outcome}`);
}

// The next process on the same ledger knows the key of the one that was killed.
async function checkRestart(client, reservation) {
  try {
    const again = await checkKeyedCall(client);
    check('the_next_process_knows_the_key', again === reservation, `${reservation} then ${again}`);
  } finally {
    await client.close();
  }
}

async function run(command) {
  const scratch = mkdtempSync(join(tmpdir(), 'steady-interop-'));
  const status = join(scratch, 'status');
  let client;
  try {
    client = await connect(KEEP_STATUS, status, command);
    await checkTools(client);
    const reservation = await checkKeyedCall(client);
    await checkProgress(client);
    await checkCancellation(client);
    await checkMany(client);
    const closing = performance.now();
    await client.close();
    const took = performance.now() - closing;
    check('closes_without_a_signal', existsSync(status) && took < GRACE_MS, `${took.toFixed(0)} ms`);
    const code = readFileSync(status, 'utf8').trim();
    check('server_exits_with_0', code === '0', `exit code ${code}`);
    await checkKill(command, scratch);
    await checkRestart(await connect(KEEP_PID, join(scratch, 'pid'), command), reservation);
    console.log(`reservation ${reservation}`);
  } finally {
    await client?.close();
    rmSync(scratch, { recursive: true, force: true });
  }
}

// A client of the server at this address.
async function connectTo(url) {
  const client = negotiated();
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return client;
}

// Has the server killed or started.
async function demand(lines, what) {
  console.log(what);
  const { done } = await lines.next();
  if (done) throw new CheckFailed(`nobody heard ${what}`);
}

// The same checks over HTTP, and the next process behind the same address.
async function runHttp(url) {
  const input = createInterface({ input: process.stdin });
  const lines = input[Symbol.asyncIterator]();
  const client = await connectTo(url);
  try {
    await checkTools(client);
    const reservation = await checkKeyedCall(client);
    await checkProgress(client);
    await checkCancellation(client);
    await checkMany(client);
    let killed;
    const onprogress = () => {
      killed ??= demand(lines, 'kill');
    };
    // To this SDK a stream that ends early says nothing: the call ends by its timeout.
    const outcome = await count(client, 1000, { onprogress, timeout: 5_000 }).catch((error) => error);
    check('killed_mid_call', killed !== undefined, `no progress, so nothing to kill: ${outcome}`);
    await killed;
    check('kill_9_fails_the_pending_call', outcome instanceof Error, `${outcome}`);
    await demand(lines, 'start');
    const result = await count(client, 2);
    check('the_client_goes_on_with_the_next_process', !result.isError, `tool error: ${JSON.stringify(result.content)}`);
    await checkRestart(await connectTo(url), reservation);
    console.log(`reservation ${reservation}`);
  } finally {
    await client.close();
    input.close();
  }
}

const command = process.argv.slice(2);
if (command.length === 0 || command[0] === '-h' || command[0] === '--help') {
  console.log('usage: node typescript_client.mjs SERVER [ARG...]');
  process.exit(command.length === 0 ? 2 : 0);
}
try {
  await (command[0].startsWith('http://') ? runHttp(command[0]) : run(command));
} catch (error) {
  const kind = error instanceof CheckFailed ? '' : `${error.constructor.name}: `;
  console.log(`FAILED ${kind}${error.message}`);
  process.exitCode = 1;
}
