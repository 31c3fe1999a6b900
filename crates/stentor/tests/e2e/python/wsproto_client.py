"""A peer of the echo page with the `wsproto` library, which has no sockets of its own: each frame
is cut into pieces here as the test wishes.

Usage: wsproto_client.py HOST PORT PIECE_BYTES: sends messages of all kinds and lengths, also in
fragments, and says how many came back as they were sent.
"""

import socket
import sys

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    Request,
    TextMessage,
)
from wsproto.extensions import PerMessageDeflate

TEXTS = ["", "a", "\u00e4\u20ac\U0001f600" * 40, "x" * 125, "x" * 126, "y" * 65535, "z" * 65536]


class Peer:
    def __init__(self, host, port, piece_bytes, extensions):
        self.piece_bytes = piece_bytes
        self.connection = socket.create_connection((host, port), timeout=30)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.protocol = WSConnection(ConnectionType.CLIENT)
        self.events = iter(())
        self.send(Request(host=host, target="/-/echo", extensions=extensions))
        accepted = self.receive()
        assert isinstance(accepted, AcceptConnection), accepted
        assert len(accepted.extensions) == len(extensions), accepted

    def send(self, event):
        data = self.protocol.send(event)
        # The head and the frames' beginnings in the smallest pieces, what is long in larger ones.
        starts = range(0, min(len(data), 300), self.piece_bytes)
        pieces = [data[start : start + self.piece_bytes] for start in starts]
        for piece in pieces:
            self.connection.sendall(piece)
        self.connection.sendall(data[sum(map(len, pieces)) :])

    def receive(self):
        while True:
            event = next(self.events, None)
            if event is not None:
                return event
            data = self.connection.recv(65536)
            self.protocol.receive_data(data or None)
            self.events = self.protocol.events()

    def message(self):
        parts = []
        while True:
            event = self.receive()
            assert isinstance(event, (TextMessage, BytesMessage)), event
            parts.append(event.data)
            if event.message_finished:
                return type(parts[0])().join(parts)


def main(host, port, piece_bytes):
    good = 0
    for extensions in ([], [PerMessageDeflate()]):
        peer = Peer(host, int(port), int(piece_bytes), extensions)
        for text in TEXTS:
            for kind, data in ((TextMessage, text), (BytesMessage, text.encode())):
                peer.send(kind(data=data))
                assert peer.message() == data
                middle = len(data) // 2
                peer.send(kind(data=data[:middle], message_finished=False))
                peer.send(Ping(payload=b"between fragments"))
                pong = peer.receive()
                assert isinstance(pong, Pong) and pong.payload == b"between fragments", pong
                peer.send(kind(data=data[middle:], message_finished=True))
                assert peer.message() == data
                good += 2
        peer.send(CloseConnection(code=4321, reason="enough"))
        closed = peer.receive()
        assert isinstance(closed, CloseConnection) and closed.code == 4321, closed
        assert peer.connection.recv(1) == b"", "the server ends the connection"
    print("good", good)


main(*sys.argv[1:])
