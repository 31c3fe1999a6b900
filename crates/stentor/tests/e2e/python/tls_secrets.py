"""Opens event streams over TLS, and prints every secret of them in hexadecimal.

Arguments: the port, the file of the certificate, a file for the key log, the number of readers.
Many handshakes run at a time. Most readers use TLS 1.3, some resume a session, some use TLS 1.2,
and some clients go away in the middle of the handshake. Each line of the output is a name and a
secret; `open` is the last line. When a line arrives on standard input, all readers close: half of
them say close_notify first.
"""

import hashlib
import hmac
import socket
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor

port, certificate, key_log, count = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])


def context_of(version):
    context = ssl.create_default_context(cafile=certificate)
    context.minimum_version = context.maximum_version = version
    context.keylog_filename = key_log
    return context


def read(context, session=None):
    plain = socket.create_connection(("127.0.0.1", port), 30)
    connection = context.wrap_socket(plain, server_hostname="localhost", session=session)
    connection.sendall(b"GET /a HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
    data = b""
    while b"data: one\n\n" not in data:
        more = connection.recv(1000)
        assert more, data
        data += more
    return connection


def abandon(context):
    """Sends a ClientHello, reads the server's answer, and leaves without a Finished."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    plain = socket.create_connection(("127.0.0.1", port), 30)
    while True:
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            plain.sendall(outgoing.read())
            incoming.write(plain.recv(100_000))
    plain.close()


def expand_label(secret, label, length):
    """HKDF-Expand-Label (RFC 8446 section 7.1), for at most one block."""
    label = b"tls13 " + label
    info = length.to_bytes(2, "big") + bytes([len(label)]) + label + b"\0"
    digest = {32: hashlib.sha256, 48: hashlib.sha384}[len(secret)]
    return hmac.new(secret, info + b"\1", digest).digest()[:length]


tls12, tls13 = context_of(ssl.TLSVersion.TLSv1_2), context_of(ssl.TLSVersion.TLSv1_3)
few = max(count // 10, 1)
with ThreadPoolExecutor(50) as pool:
    readers = list(pool.map(read, [tls13] * (count - 2 * few)))
    session = readers[0].session
    readers += pool.map(lambda _: read(tls13, session), range(few))
    assert readers[-1].session_reused
    readers += pool.map(read, [tls12] * few)
    list(pool.map(abandon, [tls13] * few))
with open(key_log) as lines:
    for line in lines:
        if line.startswith("#"):
            continue
        label, _, secret = line.split()
        print(label, secret)
        if "TRAFFIC_SECRET" in label:
            secret = bytes.fromhex(secret)
            key = expand_label(secret, b"key", 16 if len(secret) == 32 else 32)
            print("KEY_OF_" + label, key.hex())
print("open", flush=True)
sys.stdin.readline()
for number, reader in enumerate(readers):
    if number % 2:
        reader.unwrap()
    reader.close()
