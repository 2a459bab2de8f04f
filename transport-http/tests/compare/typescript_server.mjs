// A server built with the TypeScript SDK, for `cargo xtask compare`: its defaults, and the guards that it brings for hosts
// and origins.
//
// usage: node typescript_server.mjs
//
// It says where it serves in a line on standard error.

import http from 'node:http';
import { hostHeaderValidation, originValidation, toNodeHandler } from '@modelcontextprotocol/node';
import { McpServer, createMcpHandler } from '@modelcontextprotocol/server';
import { z } from 'zod';

let starts = 0;
let cancellations = 0;

const text = (text) => ({ content: [{ type: 'text', text }] });

const report = async (extra, progress) => {
  const progressToken = extra.mcpReq._meta?.progressToken;
  if (progressToken === undefined) return;
  await extra.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress } });
};

const cancellation = async (extra) => {
  starts += 1;
  const { signal } = extra.mcpReq;
  if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
  cancellations += 1;
  return text('never');
};

function make() {
  const server = new McpServer({ name: 'typescript', version: '0.0.0' }, { capabilities: { tools: { listChanged: true } } });
  const tool = (name, description, shape, run) =>
    server.registerTool(name, { description, inputSchema: z.object(shape) }, run);
  tool('echo', 'Says it again.', { text: z.string() }, (args) => text(args.text));
  tool('count', 'Reports each number.', { n: z.number() }, async ({ n }, extra) => {
    for (let step = 1; step <= n; step++) await report(extra, step);
    return text('counted');
  });
  tool('stutter', 'Reports what does not increase.', {}, async (_, extra) => {
    for (const step of [1, 1, 0.5, 2]) await report(extra, step);
    return text('stuttered');
  });
  tool('quiet', 'Reports once, and is silent.', { ms: z.number() }, async ({ ms }, extra) => {
    await report(extra, 1);
    await new Promise((resolve) => setTimeout(resolve, ms));
    return text('after the silence');
  });
  tool('wait', 'Reports, and waits for its cancellation.', {}, async (_, extra) => {
    await report(extra, 1);
    return cancellation(extra);
  });
  tool('silent', 'Waits for its cancellation.', {}, (_, extra) => cancellation(extra));
  tool('cancelled', 'Tells how many were cancelled, of how many that wait for it.', {}, () =>
    text(`${cancellations} of ${starts}`),
  );
  tool('change', 'Says that the list of tools has changed.', {}, () => {
    handler.notify.toolsChanged();
    return text('changed');
  });
  return server;
}

const handler = createMcpHandler(make, { legacy: 'reject' });
const serve = toNodeHandler(handler);
const names = ['localhost', '127.0.0.1', '[::1]'];
const guards = [hostHeaderValidation(names), originValidation(names)];
const server = http.createServer((request, response) => {
  if (guards.every((passes) => passes(request, response))) serve(request, response);
});
server.listen(0, '127.0.0.1', () => console.error(`serving http://127.0.0.1:${server.address().port}/mcp`));
process.on('SIGTERM', async () => {
  await handler.close();
  server.close();
});
