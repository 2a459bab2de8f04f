// A server built with the TypeScript SDK 1, over standard input and output: it speaks the revisions up to 2025-11-25. The
// tools are those of sim/examples/eras_server.rs.

import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { z } from 'zod';

let cancellations = 0;
const server = new McpServer({ name: 'sdk', version: '0.0.0' });
const text = (text) => ({ content: [{ type: 'text', text }] });

const report = (extra, progress) => {
  const { progressToken } = extra._meta;
  return extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress } });
};

server.registerTool('echo', { description: 'Says it again.', inputSchema: { text: z.string() } }, (args) =>
  text(args.text),
);
server.registerTool('count', { description: 'Reports.', inputSchema: { n: z.number() } }, async ({ n }, extra) => {
  for (let step = 1; step <= n; step++) await report(extra, step);
  return text('counted');
});
server.registerTool('wait', { description: 'Waits for its cancellation.' }, async (extra) => {
  await report(extra, 1);
  const { signal } = extra;
  if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
  cancellations += 1;
  return text('cancelled');
});
server.registerTool('cancelled', { description: 'Tells how many were cancelled.' }, () => text(String(cancellations)));

await server.connect(new StdioServerTransport());
