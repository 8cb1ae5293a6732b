"""An independent Modbus client (pymodbus): one request a line on stdin, one answer a line on stdout, as JSON.

usage: modbus.py HOST PORT
in   {"call": "read_coils", "unit": 1, "address": 16, "count": 1}
out  {"bits": [true]}, {"registers": [3550]}, {"information": {"0": "…"}}, {"written": true} or {"exception": 2}
"""

import json
import sys

from pymodbus.client import ModbusTcpClient


def answer(client, request):
    call, unit = request.pop("call"), request.pop("unit")
    found = getattr(client, call)(device_id=unit, **request)
    if found.isError():
        return {"exception": found.exception_code}
    if call == "read_device_information":
        return {"information": {str(key): text.decode() for key, text in found.information.items()}}
    if call in ("read_coils", "read_discrete_inputs"):
        return {"bits": found.bits[: request["count"]]}
    if call.startswith("read_"):
        return {"registers": found.registers}
    return {"written": True}


def main(host, port):
    client = ModbusTcpClient(host, port=int(port), timeout=10, retries=0)
    if not client.connect():
        sys.exit(f"no connection to {host}:{port}")
    for line in sys.stdin:
        print(json.dumps(answer(client, json.loads(line))), flush=True)
    client.close()


main(*sys.argv[1:])
