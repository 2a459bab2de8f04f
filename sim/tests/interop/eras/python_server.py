"""A server built with the Python SDK 1, over standard input and output: it speaks the revisions up to 2025-11-25.

The tools are those of sim/examples/eras_server.rs.
"""

import anyio
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


if __name__ == "__main__":
    server.run("stdio")
