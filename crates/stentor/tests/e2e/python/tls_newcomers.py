"""Connects by TLS again and again, and is slow in the middle of each handshake.

Arguments: the port, the file of the certificate. Begins a connection every 10 ms until its input
ends. Each client waits 60 ms before the last message of its handshake, which it sends together with
a request. Says how many were answered, and why the others were not.
"""

import socket
import ssl
import sys
import threading
import time

PORT, CERTIFICATE = int(sys.argv[1]), sys.argv[2]
context = ssl.create_default_context(cafile=CERTIFICATE)
answered, failures = [], []


def read_by(connection, incoming):
    data = connection.recv(65536)
    assert data, "closed"
    incoming.write(data)


def ask():
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", PORT), 30) as connection:
        while True:
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                read_by(connection, incoming)
        time.sleep(0.06)
        session.write(b"GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        connection.sendall(outgoing.read())
        while True:
            try:
                return session.read(1000)
            except ssl.SSLWantReadError:
                read_by(connection, incoming)


def client():
    try:
        status = ask().split(b"\r\n", 1)[0]
        assert status == b"HTTP/1.1 200 OK", status
        answered.append(status)
    except (OSError, AssertionError) as error:
        failures.append(repr(error))


is_over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
clients = []
print("begun", flush=True)
while not is_over.is_set() and len(clients) < 3000:
    clients.append(threading.Thread(target=client))
    clients[-1].start()
    time.sleep(0.01)
for one in clients:
    one.join()
print(f"answered {len(answered)} failed {len(failures)}")
for failure in failures:
    print(failure)
