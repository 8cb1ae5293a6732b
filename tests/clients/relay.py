"""Standard input and output to a Unix socket and back: what `interlock mcp` does, in ten lines."""

import socket
import sys
import threading

server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])


def up() -> None:
    while chunk := sys.stdin.buffer.read1(65536):
        server.sendall(chunk)
    server.shutdown(socket.SHUT_WR)


threading.Thread(target=up, daemon=True).start()
while chunk := server.recv(65536):
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
