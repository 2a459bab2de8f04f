"""The Python SDK against a server, in one of its modes: what becomes of each cell of the interop table.

usage: client.py MODE SERVER [ARG...]
       client.py MODE http://HOST:PORT/PATH

MODE is `default`, or what the SDK's `Client` takes as its mode. The server has the tools of
sim/examples/eras_server.rs. Each line says what became of one cell: `revision NAME`, `list ok`, `call FAILED why`. A
client that does not connect says `connect FAILED why`.
"""

import sys

import anyio
from mcp import StdioServerParameters
from mcp.client.client import Client

TIMEOUT_S = 20


def leaves(error):
    """The errors inside nested exception groups."""
    inner = getattr(error, "exceptions", None)
    return [leaf for e in inner for leaf in leaves(e)] if inner else [error]


def say(cell, outcome):
    """Tells what became of a cell, in one line."""
    print(cell, " ".join(str(outcome).split()), flush=True)


def told(error):
    """An error as the outcome of a cell."""
    return "FAILED " + "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))


async def cell(name, run):
    """Runs one cell; it returns what is wrong."""
    try:
        with anyio.fail_after(TIMEOUT_S):
            why = await run()
        say(name, f"FAILED {why}" if why else "ok")
    except Exception as error:
        say(name, told(error))


def text(result):
    """The text of a tool's result."""
    return result.content[0].text


async def run(client):
    """All cells of a connected client."""

    async def listed():
        tools = [tool.name for tool in (await client.list_tools()).tools]
        return "" if "echo" in tools else f"got {tools}"

    async def called():
        said = text(await client.call_tool("echo", {"text": 'hé "quoted"'}))
        return "" if said == 'hé "quoted"' else said

    async def reported():
        seen = []

        async def on_progress(progress, total, message):
            seen.append(progress)

        said = text(await client.call_tool("count", {"n": 5}, progress_callback=on_progress))
        return "" if said == "counted" and sorted(seen) == [1, 2, 3, 4, 5] else f"{said}, progress {seen}"

    async def cancelled():
        before = int(text(await client.call_tool("cancelled", {})))
        answer = None
        with anyio.CancelScope() as scope:

            async def on_progress(progress, total, message):
                scope.cancel()

            answer = await client.call_tool("wait", {}, progress_callback=on_progress)
        if answer is not None or not scope.cancelled_caught:
            return f"answered {answer}"
        while int(text(await client.call_tool("cancelled", {}))) <= before:
            await anyio.sleep(0.005)
        return ""

    say("revision", client.protocol_version)
    await cell("list", listed)
    await cell("call", called)
    await cell("progress", reported)
    await cell("cancel", cancelled)


async def main(mode, target):
    """Connects, and runs the cells."""
    server = target[0]
    if not server.startswith("http://"):
        server = StdioServerParameters(command=server, args=target[1:])
    client = Client(server) if mode == "default" else Client(server, mode=mode)
    connected = False
    try:
        async with client:
            connected = True
            await run(client)
    except Exception as error:
        say("close" if connected else "connect", told(error))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        print(__doc__)
        sys.exit(2)
    anyio.run(main, sys.argv[1], sys.argv[2:])
