"""A server built with the Python SDK, with its defaults, for `cargo xtask compare`.

usage: python_server.py

It says where it serves in a line on standard error.
"""

import socket
import sys

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("python")
starts = 0
cancellations = 0


async def cancellation() -> None:
    global starts, cancellations
    starts += 1
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        cancellations += 1
        raise


@server.tool()
def echo(text: str) -> str:
    """Says it again."""
    return text


@server.tool()
async def count(n: int, context: Context) -> str:
    """Reports each number."""
    for step in range(1, n + 1):
        await context.report_progress(step, n)
    return "counted"


@server.tool()
async def stutter(context: Context) -> str:
    """Reports what does not increase."""
    for step in [1, 1, 0.5, 2]:
        await context.report_progress(step)
    return "stuttered"


@server.tool()
async def quiet(ms: int, context: Context) -> str:
    """Reports once, and is silent."""
    await context.report_progress(1)
    await anyio.sleep(ms / 1000)
    return "after the silence"


@server.tool()
async def wait(context: Context) -> str:
    """Reports, and waits for its cancellation."""
    await context.report_progress(1)
    await cancellation()
    return "never"


@server.tool()
async def silent() -> str:
    """Waits for its cancellation."""
    await cancellation()
    return "never"


@server.tool()
def cancelled() -> str:
    """Tells how many were cancelled, of how many that wait for it."""
    return f"{cancellations} of {starts}"


@server.tool()
async def change(context: Context) -> str:
    """Says that the list of tools has changed."""
    await context.notify_tools_changed()
    return "changed"


if __name__ == "__main__":
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    host, port = listener.getsockname()
    app = server.streamable_http_app(host=host)
    print(f"serving http://{host}:{port}/mcp", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
