"""FastMCP's proxy before a server that is started by a command: what `interlock bench mcp --beside` is held against.

usage: fastmcp_proxy.py PROGRAM ARGUMENT…
"""

import sys

from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

create_proxy(StdioTransport(sys.argv[1], sys.argv[2:])).run(transport="stdio", show_banner=False)
