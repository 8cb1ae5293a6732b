"""A worker in Python under Interlock (or under systemd: the protocol is sd_notify's).

Interlock sets NOTIFY_SOCKET and WATCHDOG_USEC. From the first beat on, beats are due within WATCHDOG_USEC; a program
that sends none is only watched for its end. Every call is one datagram and never waits.
"""

import os
import socket


class Heart:
    """What a worker tells about itself."""

    def __init__(self, address=None):
        address = address or os.environ.get("NOTIFY_SOCKET", "")
        self.patience = int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6 or None
        self._socket = None
        if address[:1] in ("@", "/"):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)
            self._address = "\0" + address[1:] if address[0] == "@" else address

    def tell(self, message):
        """Sends lines NAME=VALUE; whether they went out."""
        try:
            return self._socket is not None and self._socket.sendto(message.encode(), self._address) > 0
        except OSError:
            return False

    def beat(self):
        """I am at work."""
        return self.tell("WATCHDOG=1")

    def progress(self, done):
        """So much is done: never backwards."""
        return self.tell(f"X_PROGRESS={int(done)}")

    def status(self, text):
        """One line for a person."""
        return self.tell("STATUS=" + " ".join(text.split()))
