"""Messages between a worker and the processes of its jobs: one JSON object a packet, file descriptors beside it."""

from __future__ import annotations

import json
import socket
from typing import Any

PACKET_BYTES = 128 * 1024
"""Largest message. Below Linux's default socket buffer (208 KiB), so that a send never blocks half-way."""


class ChannelClosed(ConnectionError):
    """The other end is gone."""


class Garbage(ValueError):
    """A packet that is no JSON object: something wrote where only the harness may write."""


class Channel:
    """One end of a sequenced-packet socket pair. Packets arrive whole or not at all."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Two connected ends."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), cls(theirs)

    def fileno(self) -> int:
        """The descriptor, for `selectors` and for passing to a child."""
        return self.socket.fileno()

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send one message. Raises ChannelClosed where nobody listens, ValueError where it is too large."""
        packet = json.dumps(message, ensure_ascii=False).encode()
        if len(packet) > PACKET_BYTES:
            raise ValueError(f"message of {len(packet)} bytes is over {PACKET_BYTES}")
        try:
            socket.send_fds(self.socket, [packet], fds)
        except (BrokenPipeError, ConnectionResetError) as gone:
            raise ChannelClosed(str(gone)) from gone

    def receive(self, fds: int = 0) -> tuple[dict[str, Any], list[int]]:
        """The next message and up to `fds` descriptors. Raises ChannelClosed at the end, Garbage for no JSON object."""
        try:
            packet, received, _, _ = socket.recv_fds(self.socket, PACKET_BYTES, fds)
        except ConnectionResetError as gone:
            raise ChannelClosed(str(gone)) from gone
        if not packet:
            raise ChannelClosed("the other end is closed")
        try:
            message = json.loads(packet)
        except ValueError as bad:
            raise Garbage(f"{packet[:80]!r}") from bad
        if not isinstance(message, dict):
            raise Garbage(f"{packet[:80]!r}")
        return message, received

    def close(self) -> None:
        """Close this end."""
        self.socket.close()
