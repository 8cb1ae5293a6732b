"""FastMCP's client with its tasks extension against a running server: lists, calls, runs a task, cancels one.

Over HTTP, fastmcp-tasks 4.1.4 leaves out the header `Mcp-Name` on `tasks/get`, which 2026-07-28 asks for; the right
answer is -32020 with a message that says what to send. Over stdio there are no headers, and the whole tour is made.

usage: fastmcp_client.py URL --command PROGRAM ARGUMENT…
"""

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp_tasks import client as tasks


def check(is_so: bool, what: str) -> None:
    if not is_so:
        raise SystemExit(f"fastmcp: {what}")


async def tour(client: Client, where: str) -> None:
    names = [tool.name for tool in await client.list_tools()]
    check("echo" in names, f"echo is not listed: {names}")
    echoed = await client.call_tool("echo", {"text": "你好"})
    check(echoed.structured_content == {"text": "你好"}, f"echo gave back {echoed.structured_content}")
    print(f"fastmcp: {where}: lists and calls: ok", file=sys.stderr)


async def main() -> None:
    url, command = sys.argv[1], sys.argv[3:]
    async with Client(url) as client:
        await tour(client, "http")
        try:
            await client.call_tool("slow_compute", {"seconds": 1})
            check(False, "tasks/get went without Mcp-Name: take this part of the script out")
        except Exception as error:  # whatever FastMCP makes of -32020
            check("Mcp-Name" in str(error), f"the refusal does not say what is missing: {error}")
        print("fastmcp: http: tasks/get without Mcp-Name is told so: ok", file=sys.stderr)
    async with Client(StdioTransport(command[0], command[1:])) as client:
        await tour(client, "stdio")
        done = await client.call_tool("slow_compute", {"seconds": 1})
        check(done.content[0].text == "computed for 1 s", f"the task gave {done.content}")
        handle = await tasks.call_tool_task(client, "slow_compute", {"seconds": 60})
        await handle.cancel()
        status = await handle.wait(timeout=20)
        check(status.status == "cancelled", f"the cancelled task is {status.status}")
        print("fastmcp: stdio: a task runs, another is cancelled: ok", file=sys.stderr)


asyncio.run(main())
