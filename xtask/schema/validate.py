"""Validates recorded messages against the official JSON schema.

usage: validate.py SCHEMAS RECORDS

SCHEMAS is a folder with the schema of the protocol and that of its extension for
tasks. RECORDS is a folder with two files for each connection, what the client sent
and what the server sent: NAME.http.client, NAME.http.server, NAME.stdio.client,
NAME.stdio.server. The messages of the side that NAME begins with are validated;
those of the other side only say which request a result belongs to. What was said
in an older revision, which the schemas do not describe, is counted apart: of it
only the form that JSON-RPC demands is checked. At the end
each kind of message that a side sent over a transport, and each method of its
requests, is spoiled once, and must be refused.
"""

import copy
import http.client
import io
import json
import sys
from collections import Counter
from pathlib import Path

from jsonschema import Draft202012Validator

SHOWN = 20
# Negotiated by a handshake, and not described by the schemas.
OLDER = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
# What must have been recorded, or nothing is proven about it.
REQUESTS = ["server/discover", "tools/list", "tools/call"]
SAID = ["result", "error", "notifications/progress"]
WANTED = [
    *(("stdio", "client", what) for what in [*REQUESTS, "notifications/cancelled"]),
    *(("HTTP", "client", what) for what in [*REQUESTS, "subscriptions/listen"]),
    *(("stdio", "server", what) for what in SAID),
    *(("HTTP", "server", what) for what in [*SAID, "notifications/subscriptions/acknowledged"]),
]


class Tasks:
    """What a message of the extension for tasks must look like. Its schema names results, not responses."""

    RESULTS = {"tasks/get": "GetTaskResult", "tasks/update": "UpdateTaskResult", "tasks/cancel": "CancelTaskResult"}

    def __init__(self, path):
        whole = json.loads(Path(path).read_text(encoding="utf-8"))
        self.validator = Draft202012Validator(whole)
        self.by_method = {}
        for name, definition in whole["$defs"].items():
            for part in definition.get("allOf", []):
                method = part.get("properties", {}).get("method", {}).get("const")
                if method and name.endswith(("Request", "Notification")):
                    self.by_method[method] = name

    def name(self, message, method):
        """The definition for a message, if the extension has one."""
        if "method" in message:
            return self.by_method.get(message["method"])
        result = message.get("result", {})
        if isinstance(result, dict) and result.get("resultType") == "task":
            return "CreateTaskResult"
        return self.RESULTS.get(method) if "error" not in message else None

    def part(self, message):
        """The part of a message that its definition describes."""
        return message if "method" in message else message["result"]


class Schema:
    """What a message must look like."""

    def __init__(self, folder):
        whole = json.loads(Path(folder, "mcp-2026-07-28.json").read_text(encoding="utf-8"))
        self.tasks = Tasks(Path(folder, "tasks-draft.json"))
        self.defs = whole["$defs"]
        self.validator = Draft202012Validator(whole)
        self.by_method, self.by_code = {}, {}
        for name, definition in self.defs.items():
            properties = definition.get("properties", {})
            method = properties.get("method", {}).get("const")
            if method and name.endswith(("Request", "Notification")) and not name.startswith(("Client", "Server")):
                self.by_method[method] = name
            for part in properties.get("error", {}).get("allOf", []):
                code = part.get("properties", {}).get("code", {}).get("const")
                if code is not None:
                    self.by_code[code] = name

    def name(self, message, method):
        """The definition for a message; `method` is that of the request that a result answers."""
        of_tasks = self.tasks.name(message, method)
        if of_tasks:
            return of_tasks
        if "method" in message:
            return self.by_method.get(message["method"])
        if "error" in message:
            return self.by_code.get(message["error"].get("code"), "JSONRPCErrorResponse")
        response = self.by_method.get(method, "").removesuffix("Request") + "ResultResponse"
        return response if response in self.defs else None

    def faults(self, message, name):
        """Why a message is not what its name says."""
        if name is None:
            return ["no definition fits"]
        whole = self.validator
        if name not in self.defs:
            whole, message = self.tasks.validator, self.tasks.part(message)
        validator = whole.evolve(schema={"$ref": f"#/$defs/{name}"})
        return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(message)]


class Socket(io.BytesIO):
    """Recorded bytes as http.client wants them: one socket for all of its responses."""

    def makefile(self, _mode):
        self.close = lambda: None
        return self


def parsed(text):
    """The message, or None for what is not one."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def http_requests(data):
    """The message of each request, None where it had none, and whether its head belongs to a session of an older revision."""
    messages = []
    while b"\r\n\r\n" in data:
        head, data = data.split(b"\r\n\r\n", 1)
        lines = [line.split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line]
        headers = {name.strip().lower(): value.strip().decode("latin-1") for name, value in lines}
        length = int(headers.get(b"content-length", 0))
        version = headers.get(b"mcp-protocol-version")
        old = version in OLDER or (version is None and b"mcp-session-id" in headers)
        messages.append((parsed(data[:length]), old))
        data = data[length:]
    return messages


def http_responses(data):
    """The messages of each response. What was cut off has the messages that came whole."""
    answers = []
    source = Socket(data)
    while source.tell() < len(data):
        response = http.client.HTTPResponse(source)
        try:
            response.begin()
        except http.client.HTTPException:
            break
        try:
            body = response.read()
        except http.client.IncompleteRead as cut:
            body = cut.partial
        if response.getheader("content-type", "").startswith("text/event-stream"):
            events = body.split(b"\n\n")[:-1]
            lines = [line for event in events for line in event.split(b"\n") if line.startswith(b"data:")]
            answers.append([(parsed(line[5:]), line) for line in lines])
        else:
            answers.append([(parsed(body), body)] if body else [])
    return answers


def is_handshake(request, message):
    """Whether this result answers `initialize`: a connection or a session of an older revision begins."""
    return (request or {}).get("method") == "initialize" and "result" in (message or {})


def of_http(client, server):
    """(side, message, text, method, old) of a connection: its n-th response answers its n-th request."""
    requests, answers = http_requests(client), http_responses(server)
    for index, (request, old) in enumerate(requests):
        said = answers[index] if index < len(answers) else []
        old = old or any(is_handshake(request, message) for message, _ in said)
        if request is not None:
            yield "client", request, b"", None, old
        for message, text in said:
            yield "server", message, text, (request or {}).get("method"), old
    for answer in answers[len(requests) :]:
        for message, text in answer:
            yield "server", message, text, None, False


def of_stdio(client, server):
    """The same for lines: a result answers the request with its id, and belongs to the request's revision."""
    requests, said = {}, [(parsed(line), line) for line in client.splitlines()]
    for message, _ in said:
        if message is not None and "method" in message and "id" in message:
            requests[json.dumps(message["id"])] = message
    # What a killed server had half written is no message.
    lines = [(parsed(line), line) for line in server.splitlines(keepends=True) if line.endswith(b"\n")]

    def request_of(message):
        return requests.get(json.dumps((message or {}).get("id"))) if "method" not in (message or {}) else None

    shaken = any(is_handshake(request_of(message), message) for message, _ in lines)

    def is_old(message):
        meta = ((message or {}).get("params") or {}).get("_meta") or {}
        return shaken and "io.modelcontextprotocol/protocolVersion" not in meta

    for message, line in said:
        if message is not None and "method" in message:
            yield "client", message, line, None, is_old(message)
    for message, line in lines:
        request = request_of(message)
        yield "server", message, line, (request or {}).get("method"), is_old(request or message)


def old_faults(message):
    """Why a message of an older revision is none of JSON-RPC."""
    parts = [part for part in ["method", "result", "error"] if part in message]
    if message.get("jsonrpc") != "2.0" or len(parts) != 1 or ("result" in message and "id" not in message):
        return ["neither a request, a notification nor an answer"]
    return ["a member of the current revision"] if "resultType" in (message.get("result") or {}) else []


def kind(message):
    """What a message is."""
    return message.get("method") or ("error" if "error" in message else "result")


def spoiled(message):
    """The message with one fault that its kind can have."""
    bad = copy.deepcopy(message)
    if "method" in bad and "id" in bad:
        bad["params"]["_meta"].pop("io.modelcontextprotocol/protocolVersion")
    elif kind(bad) == "error":
        bad["id"] = None
    elif kind(bad) == "result":
        bad["result"].pop("resultType")
    elif kind(bad) == "notifications/progress":
        bad["params"].pop("progressToken")
    elif kind(bad) == "notifications/subscriptions/acknowledged":
        bad["params"].pop("notifications")
    elif kind(bad) == "notifications/cancelled":
        bad["params"]["requestId"] = None
    else:
        bad["params"] = []
    return bad


def main():
    """Validates all of it; the exit code says whether everything holds."""
    schema = Schema(sys.argv[1])
    counts, samples, findings = Counter(), {}, []
    for path in sorted(Path(sys.argv[2]).glob("*.client")):
        other = path.with_suffix(".server")
        transport, read = ("HTTP", of_http) if path.stem.endswith(".http") else ("stdio", of_stdio)
        for side, message, text, method, old in read(path.read_bytes(), other.read_bytes()):
            if not path.name.startswith(side):
                continue
            if message is None:
                findings.append(f"{path.stem}: not a message: {text[:200]!r}")
                continue
            if old:
                counts[transport, side, "message of an older revision"] += 1
                faults = old_faults(message)
                findings.extend(f"{path.stem}: {fault}: {json.dumps(message)[:400]}" for fault in faults)
                continue
            name = schema.name(message, method)
            counts[transport, side, name] += 1
            faults = schema.faults(message, name)
            if faults:
                findings.append(f"{path.stem}: {name}: {faults[0][:200]}: {json.dumps(message)[:400]}")
            else:
                samples.setdefault((transport, side, kind(message)), (message, name))
    for (transport, side, name), count in sorted(counts.items(), key=str):
        print(f"{count:6} {side} {name} over {transport}")
    for (transport, side, what), (message, name) in sorted(samples.items()):
        if not schema.faults(spoiled(message), name):
            findings.append(f"a spoiled {what} of a {side} over {transport} passes: the check proves nothing")
    if next(of_stdio(b"", b"a line of a log\n"))[1] is not None:
        findings.append("a line that is no message passes: the check proves nothing")
    if not old_faults({"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete"}}) or not old_faults({"jsonrpc": "2.0"}):
        findings.append("a message that no older revision has passes: the check proves nothing")
    for transport, side, what in WANTED:
        if (transport, side, what) not in samples:
            findings.append(f"no {what} of a {side} over {transport} was recorded")
    if ("HTTP", "client", "notifications/cancelled") in samples:
        findings.append("a client over HTTP cancels by a message (rule C1)")
    print(f"{sum(counts.values())} messages, {len(samples)} kinds spoiled, {len(findings)} findings")
    print("\n".join(findings[:SHOWN]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
