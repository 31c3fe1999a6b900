"""Operates a server whose control listener asks for certificates, with the standard library alone.

Arguments: the port, the server's certificate, the newest version, and the files of a certificate
and of its key, if one is shown. Says what is answered, line by line, or why it is not let in. It
comes twice, the second time with the session of the first, if there is one to be had.
"""

import http.client
import ssl
import sys

port, certificate, version, *shown = sys.argv[1:]
context = ssl.create_default_context(cafile=certificate)
context.maximum_version = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[version]
if shown:
    context.load_cert_chain(*shown)


class Connection(http.client.HTTPSConnection):
    """One that goes on with a session, if there is one."""

    def __init__(self, session):
        super().__init__("127.0.0.2", int(port), timeout=30, context=context)
        self.session = session

    def connect(self):
        http.client.HTTPConnection.connect(self)
        self.sock = context.wrap_socket(
            self.sock, server_hostname="127.0.0.2", session=self.session
        )


def operate(session):
    connection = Connection(session)
    connection.connect()
    for method, path, body in [("PUT", "/a", b"by python"), ("GET", "/a", None)]:
        fields = {"Content-Type": "text/plain"} if body else {}
        connection.request(method, path, body, fields)
        answer = connection.getresponse()
        text = answer.read().decode()
        print(method, answer.status, text if method == "GET" else "", flush=True)
    print("resumed", connection.sock.session_reused, flush=True)
    session = connection.sock.session
    connection.sock.unwrap().close()
    return session


try:
    operate(operate(None))
except (ssl.SSLError, OSError) as error:
    # What is refused in TLS 1.3 is refused behind what a client takes for the end of the handshake.
    print("refused:", getattr(error, "reason", None) or type(error).__name__, flush=True)
