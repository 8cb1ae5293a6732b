"""The official Python client against a running server: lists, calls, and checks what it gets.

usage: python_mcp.py URL TOOL ARGS [--socket PATH | --command CMD…]

TOOL is called with ARGS (JSON) in each era and over each transport that was named. With the engine of answers behind
the server, more is tried: a question that the person behind the client answers, progress, the endings, and tasks, of
which one is carried to its end and one cancelled. Tasks by the extension of 2026-07-28 alone: what this client knows as
the answer to a call of the older era is no task.
"""

import argparse
import asyncio
import json
import pathlib
import sys
from typing import Any, Literal

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.extension import ClientExtension, ResultClaim
from mcp_types import CallToolResult, ElicitResult, Request, RequestParams, Result

RELAY = pathlib.Path(__file__).with_name("relay.py")


def check(is_so: bool, what: str) -> None:
    if not is_so:
        raise SystemExit(f"python client: {what}")


async def allow(_context, params) -> ElicitResult:
    check("q" in params.message, f"the form does not name its question: {params.message!r}")
    return ElicitResult(action="accept", content={"decision": "allow"})


class Created(Result):
    """The answer to a call that goes on as a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str


class Which(RequestParams):
    task_id: str


class Get(Request[Which, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    name_param = "taskId"
    params: Which


class Cancel(Request[Which, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    name_param = "taskId"
    params: Which


class Task(Result):
    status: str
    result: dict[str, Any] | None = None


async def ended(session, task_id: str) -> Task:
    while True:
        task = await session.send_request(Get(params=Which(task_id=task_id)), Task)
        if task.status not in ("working", "input_required"):
            return task
        await asyncio.sleep(0.05)


class Tasks(ClientExtension):
    """The tasks extension, by the client's own way for extensions."""

    identifier = "io.modelcontextprotocol/tasks"

    def claims(self):
        async def resolve(created, context) -> CallToolResult:
            task = await ended(context.session, created.task_id)
            check(task.result is not None, f"the task ended as {task.status}, without a result")
            return CallToolResult.model_validate(task.result)

        return [ResultClaim(result_type="task", model=Created, resolve=resolve)]


async def tasks(target) -> None:
    async with Client(target, mode="2026-07-28", read_timeout_seconds=20, extensions=[Tasks()]) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        if "slow_compute" not in names:
            return
        done = await client.call_tool("slow_compute", {"seconds": 1})
        check(done.content[0].text == "computed for 1 s", f"the task gave {done.content}")
        long = await client.session.call_tool("slow_compute", {"seconds": 60}, allow_claimed=True)
        check(isinstance(long, Created) and long.status == "working", f"this is no task: {long}")
        await client.session.send_request(Cancel(params=Which(task_id=long.task_id)), Result)
        status = (await asyncio.wait_for(ended(client.session, long.task_id), 20)).status
        check(status == "cancelled", f"the cancelled task is {status}")
        print("python client: a task runs, another is cancelled: ok", file=sys.stderr)


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
    for target in [given.url, pipe]:
        if target:
            await tasks(target)


asyncio.run(main())
