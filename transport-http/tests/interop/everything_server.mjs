// The reference server `server-everything` over Streamable HTTP, on a free port.
//
// usage: node everything_server.mjs
//
// It says on standard error where it serves, and for each cancellation that the SDK is told of whether it named a request
// that was running: no tool of this server looks at its cancellation.

import net from 'node:net';
import { Protocol } from '@modelcontextprotocol/sdk/shared/protocol.js';

const port = await new Promise((resolve) => {
  const server = net.createServer().listen(0, () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

const cancel = Protocol.prototype._oncancel;
Protocol.prototype._oncancel = function (notification) {
  const runs = this._requestHandlerAbortControllers.has(notification.params.requestId);
  process.stderr.write(`cancelled ${runs ? 'a running request' : 'nothing'}\n`);
  return cancel.call(this, notification);
};

process.env.PORT = port;
console.log = () => {};
console.error = (said) => {
  if (`${said}`.includes('listening on port')) process.stderr.write(`serving http://127.0.0.1:${port}/mcp\n`);
};
await import('./node_modules/@modelcontextprotocol/server-everything/dist/transports/streamableHttp.js');
