"""A server built with the Python SDK, with the tools that the interop step calls.

usage: python_server.py

It serves over standard input and output until the end of its input.
"""

import anyio
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("python")
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


if __name__ == "__main__":
    server.run("stdio")
