// A server built with the TypeScript SDK, with the tools that the interop step calls.
//
// usage: node typescript_server.mjs
//
// It serves over standard input and output until the end of its input.

import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

let cancellations = 0;

const text = (text) => ({ content: [{ type: 'text', text }] });

const report = (extra, progress, total) => {
  const { progressToken } = extra.mcpReq._meta;
  return extra.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total } });
};

function make() {
  const server = new McpServer({ name: 'typescript', version: '0.0.0' });
  server.registerTool('echo', { description: 'Says it again.', inputSchema: z.object({ text: z.string() }) }, (args) =>
    text(args.text),
  );
  server.registerTool(
    'count',
    { description: 'Reports each number.', inputSchema: z.object({ n: z.number() }) },
    async ({ n }, extra) => {
      for (let step = 1; step <= n; step++) await report(extra, step, n);
      return text('counted');
    },
  );
  server.registerTool('wait', { description: 'Waits for its cancellation.', inputSchema: z.object({}) }, async (_, extra) => {
    await report(extra, 1, 1);
    const { signal } = extra.mcpReq;
    if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
    cancellations += 1;
    return text('cancelled');
  });
  server.registerTool('cancelled', { description: 'Tells how many were cancelled.', inputSchema: z.object({}) }, () =>
    text(String(cancellations)),
  );
  return server;
}

serveStdio(make);
