// A server built with the TypeScript SDK 1, which speaks the revisions up to 2025-11-25 over Streamable HTTP, with sessions.
//
// usage: node sdk_server.mjs
//
// It says where it serves in a line on standard error.

import http from 'node:http';
import { randomUUID } from 'node:crypto';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { z } from 'zod';

let starts = 0;
let cancellations = 0;
let handshakes = 0;
let deletions = 0;
let sessions = new Map();

const text = (text) => ({ content: [{ type: 'text', text }] });
const form = { message: 'Who?', requestedSchema: { type: 'object', properties: { name: { type: 'string' } } } };

const report = (extra, progress) => {
  const { progressToken } = extra._meta;
  return extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress } });
};

function make() {
  const server = new McpServer({ name: 'sdk', version: '0.0.0' });
  const tool = (name, description, inputSchema, run) => server.registerTool(name, { description, inputSchema }, run);
  tool('echo', 'Says it again.', { text: z.string() }, (args) => text(args.text));
  tool('count', 'Reports each number.', { n: z.number() }, async ({ n }, extra) => {
    for (let step = 1; step <= n; step++) await report(extra, step);
    return text('counted');
  });
  tool('wait', 'Reports, and waits for its cancellation.', {}, async (_, extra) => {
    starts += 1;
    await report(extra, 1);
    const { signal } = extra;
    if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
    cancellations += 1;
    return text('never');
  });
  tool('cancelled', 'Tells how many were cancelled, of how many that wait for it.', {}, () =>
    text(`${cancellations} of ${starts}`),
  );
  tool('ask', 'Asks on the stream of its call.', {}, async (_, extra) => {
    const answer = await extra.sendRequest({ method: 'elicitation/create', params: form }, z.any());
    return text(answer.content.name);
  });
  tool('ask_aside', 'Asks on the stream that belongs to no call.', {}, async () => {
    const answer = await server.server.elicitInput(form);
    return text(answer.content.name);
  });
  tool('change', 'Says that the list of tools has changed.', {}, () => {
    server.sendToolListChanged();
    return text('changed');
  });
  tool('forget', 'Forgets all sessions, once it has answered.', {}, () => {
    setImmediate(() => (sessions = new Map()));
    return text('forgotten');
  });
  tool('handshakes', 'Tells how many there were, and how many sessions were ended by their clients.', {}, () =>
    text(`${handshakes} and ${deletions}`),
  );
  return server;
}

async function serve(request, response) {
  const id = request.headers['mcp-session-id'];
  if (id !== undefined) {
    const transport = sessions.get(id);
    if (request.method === 'DELETE') deletions += 1;
    if (transport) return transport.handleRequest(request, response);
    response.writeHead(404, { 'content-type': 'application/json' });
    const error = { code: -32001, message: 'Session not found' };
    return response.end(JSON.stringify({ jsonrpc: '2.0', error, id: null }));
  }
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => {
      handshakes += 1;
      sessions.set(id, transport);
    },
  });
  await make().connect(transport);
  return transport.handleRequest(request, response);
}

const server = http.createServer((request, response) => {
  serve(request, response).catch((error) => {
    console.error(error);
    response.destroy();
  });
});
server.listen(0, '127.0.0.1', () => console.error(`serving http://127.0.0.1:${server.address().port}/mcp`));
