"""Reads over TLS with the standard library alone: a value, a stream, a WebSocket.

Arguments: the port, the file of the certificate, the newest version. Says what it has read, line by
line, and ends each connection by close_notify in both directions.
"""

import base64
import os
import socket
import ssl
import sys

port, certificate, version = int(sys.argv[1]), sys.argv[2], sys.argv[3]
context = ssl.create_default_context(cafile=certificate)
context.maximum_version = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[version]
context.set_alpn_protocols(["http/1.1"])
session = None


def connect():
    plain = socket.create_connection(("127.0.0.1", port), 30)
    return context.wrap_socket(plain, server_hostname="localhost", session=session)


def until(connection, end):
    data = b""
    while end not in data:
        more = connection.recv(1000)
        assert more, data
        data += more
    return data


def ask(connection, path, fields=""):
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n".encode())


connection = connect()
assert connection.version() == "TLSv" + version, connection.version()
assert connection.selected_alpn_protocol() == "http/1.1"
for _ in range(3):
    ask(connection, "/a")
    print("value", until(connection, b"one").rsplit(b"\r\n", 1)[1].decode(), flush=True)
session = connection.session
connection.unwrap().close()

connection = connect()
print("resumed", connection.session_reused, flush=True)
ask(connection, "/a", "Accept: text/event-stream\r\n")
until(connection, b"data: one\n\n")
print("stream", flush=True)
until(connection, b"data: two\n\n")
print("stream two", flush=True)
connection.close()

connection = connect()
key = base64.b64encode(os.urandom(16)).decode()
ask(
    connection,
    "/a",
    "Connection: Upgrade\r\nUpgrade: websocket\r\n"
    f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n",
)
until(connection, b"\x81\x03two")
print("socket", flush=True)
# A masked close frame, and the server's.
connection.sendall(b"\x88\x82\x00\x00\x00\x00\x03\xe8")
until(connection, b"\x88\x02\x03\xe8")
print("closed", flush=True)
