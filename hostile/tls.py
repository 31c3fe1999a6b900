"""Clients of TLS as attackers need them: half of one, and one that does what Python's ssl module
cannot do."""

import contextlib
import ctypes
import ctypes.util
import socket
import ssl
import struct
from functools import cache

from measure.client import trusting

CTRL_SET_MAX_PROTO_VERSION = 124
PATIENCE = struct.pack("ll", 5, 0)
TLS_1_2 = 0x0303
UPDATE_REQUESTED = 1
KEY_UPDATE_BYTES = 27
"""A record with nothing but a KeyUpdate."""


def hello() -> bytes:
    """The first thing a client says."""
    said = ssl.MemoryBIO()
    client = trusting().wrap_bio(ssl.MemoryBIO(), said)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return said.read()


class Session:
    """A session by OpenSSL itself; OSError if there is none to be had."""

    def __init__(self, opened: socket.socket, is_old: bool = False) -> None:
        self.socket = opened
        # OpenSSL waits by itself, and knows nothing of Python's patience.
        opened.settimeout(None)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, PATIENCE)
        library = openssl()
        self.session = library.SSL_new(context(is_old))
        if library.SSL_set_fd(self.session, opened.fileno()) != 1 or (
                library.SSL_connect(self.session) != 1):
            self.close()
            raise OSError("no handshake")
        opened.setblocking(False)

    def update_keys(self) -> bool:
        """Says that its key is another from here on, and asks for the same."""
        library = openssl()
        return (library.SSL_key_update(self.session, UPDATE_REQUESTED) == 1
                and library.SSL_do_handshake(self.session) == 1)

    def ask_anew(self) -> None:
        """Asks for another handshake, and does not wait for what is said to that."""
        openssl().SSL_renegotiate(self.session)
        openssl().SSL_do_handshake(self.session)

    def send(self, data: bytes) -> bool:
        return openssl().SSL_write(self.session, data, len(data)) == len(data)

    def receive(self) -> None:
        """Reads what there is, and does not look at it."""
        while openssl().SSL_read(self.session, ctypes.create_string_buffer(4_096), 4_096) > 0:
            pass

    def close(self) -> None:
        openssl().SSL_free(self.session)
        self.socket.close()


@cache
def openssl() -> ctypes.CDLL:
    name = ctypes.util.find_library("ssl")
    if name is None:
        raise OSError("there is no libssl")
    library = ctypes.CDLL(name)
    for function in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
        getattr(library, function).restype = ctypes.c_void_p
    number, buffer = [ctypes.c_int], [ctypes.c_char_p, ctypes.c_int]
    for function, arguments in {
            "SSL_set_fd": number, "SSL_connect": [], "SSL_key_update": number,
            "SSL_do_handshake": [], "SSL_renegotiate": [], "SSL_write": buffer,
            "SSL_read": buffer, "SSL_free": []}.items():
        getattr(library, function).argtypes = [ctypes.c_void_p, *arguments]
    library.SSL_CTX_new.argtypes = library.SSL_new.argtypes = [ctypes.c_void_p]
    library.SSL_CTX_ctrl.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
    return library


@cache
def context(is_old: bool) -> ctypes.c_void_p:
    """What sessions are made of: it looks at no certificate."""
    library = openssl()
    made = ctypes.c_void_p(library.SSL_CTX_new(library.TLS_client_method()))
    if is_old:
        library.SSL_CTX_ctrl(made, CTRL_SET_MAX_PROTO_VERSION, TLS_1_2, None)
    return made
