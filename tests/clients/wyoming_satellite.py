"""A voice front end of the `wyoming` package, driven line by line: one event in, its answer out, all as JSON.

Each line opens a connection of its own, as Home Assistant does: {"type": ..., "data": {...}, "payload": N, "reply": bool}.
"""

import asyncio
import json
import sys

from wyoming.client import AsyncClient
from wyoming.event import Event
from wyoming.handle import Handled, NotHandled
from wyoming.info import Describe, Info


async def one(uri, request):
    async with AsyncClient.from_uri(uri) as client:
        if request["type"] == "describe":
            await client.write_event(Describe().event())
            event = await asyncio.wait_for(client.read_event(), 60)
            info = Info.from_event(event)
            program = info.handle[0]
            return {
                "type": event.type,
                "handle": [program.name, program.installed, program.models[0].languages],
                "intent": len(info.intent),
                "asr": len(info.asr),
            }
        payload = bytes(request.get("payload", 0)) or None
        await client.write_event(Event(type=request["type"], data=request.get("data", {}), payload=payload))
        if not request.get("reply", True):
            # Nothing is said to it: the next question shows that the connection goes on.
            await client.write_event(Event(type="ping", data={"text": "still here"}))
        event = await asyncio.wait_for(client.read_event(), 60)
        if event is None:
            return {"type": "closed"}
        if Handled.is_type(event.type):
            Handled.from_event(event)
        if NotHandled.is_type(event.type):
            NotHandled.from_event(event)
        return {"type": event.type, "data": event.data}


async def main():
    for line in sys.stdin:
        try:
            answer = await one(sys.argv[1], json.loads(line))
        except ConnectionError as error:
            answer = {"type": "closed", "why": str(error)}
        print(json.dumps(answer, ensure_ascii=False), flush=True)


asyncio.run(main())
