"""Drives an MCP server with the Python SDK, at revision 2026-07-28.

usage: python_client.py SERVER [ARG...]
       python_client.py http://HOST:PORT/PATH

The arguments are the command line of a server over stdio, or where one serves
over HTTP. Each check that holds prints `ok NAME`; the first one that does not
prints `FAILED NAME: why` and the exit code is 1. Over HTTP, whoever started this
kills the server at the line `kill`, starts it at the line `start`, and answers
each with a line. `cargo xtask verify --only interop` installs the SDK and runs
this.
"""

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import anyio
from mcp import StdioServerParameters
from mcp.client.client import Client

REVISION = "2026-07-28"
TIMEOUT_S = 30
# The SDK signals a server that has not left this long after its stdin closed.
GRACE_S = 2.0
# The shell keeps the exit status, which the SDK does not tell: no file means
# that the server was killed together with its shell.
KEEP_STATUS = 'file=$1; shift; "$@"; echo $? >"$file"'
# Which process to kill, the SDK does not tell either.
KEEP_PID = 'echo $$ >"$1"; shift; exec "$@"'
AT_ONCE = 200


class CheckFailed(Exception):
    """A check that does not hold."""


def check(name, holds, why=""):
    """Prints the check, or ends the run."""
    if not holds:
        raise CheckFailed(f"{name}: {why}")
    print(f"ok {name}", flush=True)


def reservation_of(result):
    """The reservation id in a result: in its structured content, else in its text."""
    content = result.structured_content
    if not isinstance(content, dict):
        content = json.loads(result.content[0].text)
    found = content.get("reservationId") or content.get("reservation_id")
    if not found:
        raise CheckFailed(f"reserve_inventory: no reservationId in {content}")
    return found


async def count(client, to, on_progress=None):
    """Calls the tool that counts slowly and reports each step."""
    arguments = {"to": to, "interval_ms": 20}
    return await client.call_tool("slow_count", arguments, progress_callback=on_progress)


async def check_tools(client):
    """The tools that are called below are there."""
    tools = {tool.name for tool in (await client.list_tools()).tools}
    wanted = {"reserve_inventory", "slow_count"}
    check("tools_are_listed", wanted <= tools, f"got {sorted(tools)}")


async def check_keyed_call(client):
    """The same key and the same arguments give one reservation."""
    arguments = {"sku": "widget", "quantity": 1, "tenant": "acme", "idempotencyKey": "order-7"}
    first = await client.call_tool("reserve_inventory", arguments)
    check("reserve_answers", not first.is_error, f"tool error: {first.content}")
    second = await client.call_tool("reserve_inventory", arguments)
    one, two = reservation_of(first), reservation_of(second)
    check("same_key_same_reservation", one == two, f"{one} then {two}")
    other = await client.call_tool("reserve_inventory", arguments | {"idempotencyKey": "order-8"})
    check("other_key_other_reservation", reservation_of(other) != one, f"both {one}")
    return one


async def check_progress(client):
    """Progress arrives and strictly increases."""
    seen = []

    async def on_progress(progress, total, message):
        seen.append(progress)

    result = await count(client, 5, on_progress)
    check("slow_count_answers", not result.is_error, f"tool error: {result.content}")
    check("progress_arrives", seen, "none arrived")
    rising = all(a < b for a, b in zip(seen, seen[1:]))
    check("progress_strictly_increases", rising, f"{seen}")


async def check_cancellation(client):
    """A call cancelled in the middle settles at once, and the next one is served."""
    cancelled_at = None
    answer = None
    with anyio.fail_after(TIMEOUT_S):
        with anyio.CancelScope() as scope:

            async def on_progress(progress, total, message):
                nonlocal cancelled_at
                if cancelled_at is None and progress >= 2:
                    cancelled_at = time.monotonic()
                    scope.cancel()

            answer = await count(client, 1000, on_progress)
    settled = time.monotonic()
    check("cancelled_mid_call", cancelled_at is not None, "no progress, so nothing to cancel")
    check("call_settled_as_cancelled", scope.cancelled_caught and answer is None, f"{answer}")
    check("cancel_settles_at_once", settled - cancelled_at < 2, f"{settled - cancelled_at:.1f} s")
    result = await count(client, 2)
    check("next_call_is_served", not result.is_error, f"tool error: {result.content}")


async def check_many(client):
    """Calls at once, each with an answer of its own."""
    texts = {}

    async def one(to):
        result = await client.call_tool("slow_count", {"to": to, "interval_ms": 0})
        texts[to] = result.content[0].text

    async with anyio.create_task_group() as group:
        for to in range(1, AT_ONCE + 1):
            group.start_soon(one, to)
    wrong = {to: text for to, text in texts.items() if text != f"counted to {to}"}
    check("two_hundred_at_once", len(texts) == AT_ONCE and not wrong, f"{len(texts)}, {wrong}")


def through_shell(script, file, command):
    """The server, started by a script that leaves something in a file."""
    return StdioServerParameters(command="/bin/sh", args=["-c", script, "sh", str(file), *command])


def connect(server):
    """A client of this server."""
    return Client(server, mode=REVISION, read_timeout_seconds=TIMEOUT_S)


async def check_kill(command, scratch):
    """A server killed in the middle of a call: the call fails, nobody waits."""
    file = Path(scratch) / "pid"
    killed, outcome = False, None
    with anyio.fail_after(TIMEOUT_S):
        async with connect(through_shell(KEEP_PID, file, command)) as client:

            async def on_progress(progress, total, message):
                nonlocal killed
                if not killed:
                    killed = True
                    os.kill(int(file.read_text()), signal.SIGKILL)

            try:
                outcome = await count(client, 1000, on_progress)
            except Exception as error:
                outcome = error
    check("killed_mid_call", killed, "no progress, so nothing to kill")
    failed = isinstance(outcome, Exception) and not isinstance(outcome, TimeoutError)
    check("kill_9_fails_the_pending_call", failed, f"{outcome}")


async def check_restart(server, reservation):
    """The next process on the same ledger knows the key of the one that was killed."""
    async with connect(server) as client:
        again = await check_keyed_call(client)
    check("the_next_process_knows_the_key", again == reservation, f"{reservation} then {again}")


async def run(command):
    """Connects, runs the checks, closes, and looks at how the server left."""
    with tempfile.TemporaryDirectory() as scratch:
        status = Path(scratch) / "status"
        async with connect(through_shell(KEEP_STATUS, status, command)) as client:
            await check_tools(client)
            reservation = await check_keyed_call(client)
            await check_progress(client)
            await check_cancellation(client)
            await check_many(client)
            closing = time.monotonic()
        took = time.monotonic() - closing
        check("closes_without_a_signal", status.exists() and took < GRACE_S, f"{took:.1f} s")
        code = status.read_text().strip()
        check("server_exits_with_0", code == "0", f"exit code {code}")
        await check_kill(command, scratch)
        await check_restart(StdioServerParameters(command=command[0], args=command[1:]), reservation)
    print(f"reservation {reservation}", flush=True)


async def demand(what):
    """Has the server killed or started."""
    print(what, flush=True)
    heard = await anyio.to_thread.run_sync(sys.stdin.readline)
    if not heard:
        raise CheckFailed(f"nobody heard {what!r}")


async def check_kill_http(client):
    """A server killed in the middle of a call: the call fails, nobody waits."""
    killed, outcome = False, None
    with anyio.fail_after(TIMEOUT_S):

        async def on_progress(progress, total, message):
            nonlocal killed
            if not killed:
                killed = True
                await demand("kill")

        try:
            outcome = await count(client, 1000, on_progress)
        except Exception as error:
            outcome = error
    check("killed_mid_call", killed, "no progress, so nothing to kill")
    failed = isinstance(outcome, Exception) and not isinstance(outcome, TimeoutError)
    check("kill_9_fails_the_pending_call", failed, f"{outcome}")


async def run_http(url):
    """The same checks over HTTP, and the next process behind the same address."""
    async with connect(url) as client:
        await check_tools(client)
        reservation = await check_keyed_call(client)
        await check_progress(client)
        await check_cancellation(client)
        await check_many(client)
        await check_kill_http(client)
        await demand("start")
        result = await count(client, 2)
        check("the_client_goes_on_with_the_next_process", not result.is_error, f"{result.content}")
    await check_restart(url, reservation)
    print(f"reservation {reservation}", flush=True)


def leaves(error):
    """The errors inside nested exception groups."""
    inner = getattr(error, "exceptions", None)
    return [leaf for e in inner for leaf in leaves(e)] if inner else [error]


def main():
    command = sys.argv[1:]
    if not command or command[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if command else 2
    try:
        if command[0].startswith("http://"):
            anyio.run(run_http, command[0])
        else:
            anyio.run(run, command)
    except Exception as error:
        for leaf in leaves(error):
            kind = "" if isinstance(leaf, CheckFailed) else f"{type(leaf).__name__}: "
            print(f"FAILED {kind}{leaf}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
