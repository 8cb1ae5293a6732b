"""The official Python client against a running server: lists, calls, and checks what it gets.

usage: python_mcp.py URL TOOL ARGS [--socket PATH | --command CMD…]

TOOL is called with ARGS (JSON) in each era and over each transport that was named. With the engine of answers behind
the server, more is tried: a question that the person behind the client answers, progress, and the endings.
"""

import argparse
import asyncio
import json
import pathlib
import sys

from mcp import Client, MCPError, StdioServerParameters
from mcp_types import ElicitResult

RELAY = pathlib.Path(__file__).with_name("relay.py")


def check(is_so: bool, what: str) -> None:
    if not is_so:
        raise SystemExit(f"python client: {what}")


async def allow(_context, params) -> ElicitResult:
    check("q" in params.message, f"the form does not name its question: {params.message!r}")
    return ElicitResult(action="accept", content={"decision": "allow"})


async def tour(target, mode: str, tool: str, arguments: dict) -> None:
    async with Client(target, mode=mode, read_timeout_seconds=20, elicitation_callback=allow) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        check(names == sorted(names), f"the list is not sorted: {names}")
        check(tool in names, f"{tool} is not listed: {names}")
        result = await client.call_tool(tool, arguments)
        check(not result.is_error, f"{tool} went wrong: {result.content}")
        if "echo" in names:
            check(result.structured_content == arguments, f"echo gave back {result.structured_content}")
            asked = await client.call_tool("ask", {"x": 1})
            check(asked.structured_content == {"ran": True}, f"the person's word did not arrive: {asked}")
            steps = []

            async def note(progress, _total, _message) -> None:
                steps.append(progress)

            await client.call_tool("progress", {}, progress_callback=note)
            check(steps == [0, 50, 100], f"progress was {steps}")
            for name in ["fail", "unknown", "denied"]:
                bad = await client.call_tool(name, {})
                check(bad.is_error is True, f"{name} is no error: {bad}")
        try:
            await client.call_tool("no_such_tool_here", {})
            check(False, "a tool that does not exist was called")
        except MCPError as error:
            check(error.error.code == -32602, f"a tool that does not exist gives {error.error}")
        print(f"python client: {mode}, {client.protocol_version}: ok, {len(names)} tools", file=sys.stderr)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("tool")
    parser.add_argument("args", type=json.loads)
    parser.add_argument("--socket")
    parser.add_argument("--command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    pipe = None
    if given.socket:
        pipe = StdioServerParameters(command=sys.executable, args=[str(RELAY), given.socket])
    elif given.command:
        pipe = StdioServerParameters(command=given.command[0], args=given.command[1:])
    for mode in ["auto", "legacy", "2026-07-28"]:
        await tour(given.url, mode, given.tool, given.args)
        if pipe:
            await tour(pipe, mode, given.tool, given.args)


asyncio.run(main())
