// One peer of the interop table against a server: what its SDK does with its own settings.
//
// usage: node client.mjs PEER SERVER [ARG...]
//        node client.mjs PEER http://HOST:PORT/PATH
//
// PEER is `default`, `auto` or `pinned` (the TypeScript SDK 2 in its modes) or `sdk` (the SDK 1). The server has the tools
// of sim/examples/eras_server.rs. Each line says what became of one cell: `revision NAME`, `list ok`, `call FAILED why`.
// A client that does not connect says `connect FAILED why`.

import { setTimeout as pause } from 'node:timers/promises';

const TIMEOUT_MS = 20_000;
const MODES = { default: undefined, auto: { mode: 'auto' }, pinned: { mode: { pin: '2026-07-28' } } };

// The client of a peer, its transport, and how it calls a tool.
async function peer(name, target) {
  const info = { name: `interop-${name}`, version: '1' };
  const http = target[0].startsWith('http://');
  const child = { command: target[0], args: target.slice(1) };
  if (name === 'sdk') {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const transport = http ? new StreamableHTTPClientTransport(new URL(target[0])) : new StdioClientTransport(child);
    const client = new Client(info);
    return { client, transport, callTool: (params, options) => client.callTool(params, undefined, options) };
  }
  if (!(name in MODES)) throw new Error(`no peer ${name}`);
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
  const transport = http ? new StreamableHTTPClientTransport(new URL(target[0])) : new StdioClientTransport(child);
  const client = new Client(info, MODES[name] && { versionNegotiation: MODES[name] });
  return { client, transport, callTool: (params, options) => client.callTool(params, options) };
}

const say = (cell, outcome) => console.log(`${cell} ${String(outcome).replaceAll('\n', ' ')}`);

async function cell(name, run) {
  try {
    const why = await run();
    say(name, why ? `FAILED ${why}` : 'ok');
  } catch (error) {
    say(name, `FAILED ${error?.message ?? error}`);
  }
}

const text = (result) => result.content[0].text;

async function main([name, ...target]) {
  const { client, transport, callTool } = await peer(name, target);
  // The SDK 1 tells the transport only.
  let agreed;
  const setVersion = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (version) => {
    agreed = version;
    setVersion?.(version);
  };
  const call = (tool, args, options = {}) =>
    callTool({ name: tool, arguments: args }, { timeout: TIMEOUT_MS, ...options });
  try {
    await client.connect(transport);
  } catch (error) {
    say('connect', `FAILED ${error?.message ?? error}`);
    await client.close().catch(() => {});
    return;
  }
  say('revision', client.getNegotiatedProtocolVersion?.() ?? agreed ?? 'unknown');
  await cell('list', async () => {
    const tools = (await client.listTools()).tools.map((tool) => tool.name);
    return tools.includes('echo') ? '' : `got ${tools}`;
  });
  await cell('call', async () => {
    const said = text(await call('echo', { text: 'hé "quoted"' }));
    return said === 'hé "quoted"' ? '' : said;
  });
  await cell('progress', async () => {
    const seen = [];
    const said = text(await call('count', { n: 5 }, { onprogress: ({ progress }) => seen.push(progress) }));
    return said === 'counted' && seen.join() === '1,2,3,4,5' ? '' : `${said}, progress ${seen}`;
  });
  await cell('cancel', async () => {
    const before = Number(text(await call('cancelled', {})));
    const controller = new AbortController();
    const options = { signal: controller.signal, onprogress: () => controller.abort('enough') };
    const end = await call('wait', {}, options).then(
      (result) => `answered ${JSON.stringify(result)}`,
      () => '',
    );
    if (end) return end;
    if (!controller.signal.aborted) return 'it ended before it was cancelled';
    const until = Date.now() + TIMEOUT_MS;
    while (Number(text(await call('cancelled', {}))) <= before) {
      if (Date.now() > until) return 'the server did not hear of it';
      await pause(5);
    }
    return '';
  });
  await client.close();
}

await main(process.argv.slice(2));
process.exit(0);
