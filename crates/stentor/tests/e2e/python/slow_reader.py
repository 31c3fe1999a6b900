"""A reader with a small receive buffer that reads nothing until it is told to.

Usage: slow_reader.py HOST PORT TARGET; then a line on standard input. It says "open" when the first
event is there, and after the line prints everything else that comes.
"""

import socket
import sys

host, port, target = sys.argv[1:]
with socket.socket() as connection:
    # Before connecting: it decides the window that is offered.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((host, int(port)))
    request = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n"
    connection.sendall(request.encode())
    received = b""
    while b"\ndata: " not in received or not received.endswith(b"\n\n\r\n"):
        received += connection.recv(65536)
    print("open")
    sys.stdin.readline()
    while received := connection.recv(65536):
        sys.stdout.write(received.decode())
