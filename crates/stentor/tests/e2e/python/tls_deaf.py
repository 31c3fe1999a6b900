"""A server that pings a WebSocket over TLS without end, and reads nothing of what it is answered.

Arguments: the files of its certificate and key. Says its port. It has one client.
"""

import base64
import hashlib
import socket
import ssl
import sys

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
PINGS = (b"\x89\x7d" + bytes(125)) * 128

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(*sys.argv[1:])
listener = socket.socket()
# So that little is on its way which nobody reads.
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
listener.bind(("127.0.0.1", 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
connection = context.wrap_socket(listener.accept()[0], server_side=True)
head = b""
while b"\r\n\r\n" not in head:
    head += connection.recv(1000)
at = head.lower().index(b"sec-websocket-key: ") + 19
key = head[at : head.index(b"\r\n", at)]
accept = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
connection.sendall(
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
)
try:
    while True:
        connection.sendall(PINGS)
except OSError:
    pass
