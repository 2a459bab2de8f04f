"""A server built with the Python SDK 1: it speaks the revisions up to 2025-11-25.

usage: python_server.py [http]

It serves on standard input and output, or over HTTP; then it says where in a line on standard error. The tools are those
of sim/examples/eras_server.rs.
"""

import socket
import sys

import anyio
import uvicorn
from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("python")
cancellations = 0


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
async def wait(context: Context) -> str:
    """Waits for its cancellation."""
    global cancellations
    await context.report_progress(1, 1)
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        cancellations += 1
        raise


@server.tool()
def cancelled() -> str:
    """Tells how many were cancelled."""
    return str(cancellations)


def serve() -> None:
    """Serves over HTTP, on a port that is free."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"serving http://127.0.0.1:{listener.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="critical")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        serve()
    else:
        server.run("stdio")
