"""The subjects: Stentor, nginx, nchan and the two floors, each with its command line."""

import random
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from . import client
from .bench import OUT_DIR, SERVER_CORE, Bench, MeasurementError, install
from .process import Server, free_port

LOOKUP_CONFIG = """\
[[lookup]]
path = "/list="
topics = "/quotes/{name}"
line = 'var hq_str_{name}="{value}";'
"""

# Streams say nothing by themselves: neither does nchan, nor the floor.
QUIET_STREAMS_CONFIG = """\
[streams]
heartbeat = "0s"
"""

# Whoever stops reading for as long as a measurement takes keeps its connection, at both servers.
PATIENCE_SECONDS = 600
READY_SECONDS_MAX = 120
# Seldom enough that the requests are no part of what a start costs.
READY_EVERY_SECONDS = 0.05
PATIENT_CONFIG = f"""\
[limits]
write_timeout = "{PATIENCE_SECONDS}s"
"""

# Everything that nginx would do besides answering is off; a single process, as one worker.
NGINX_CONFIG = """\
{modules}
daemon off;
master_process off;
worker_processes 1;
pid {out}/{name}.pid;
error_log stderr crit;
events {{ worker_connections 19000; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path {out}/nginx-body;
    proxy_temp_path {out}/nginx-proxy;
    fastcgi_temp_path {out}/nginx-fastcgi;
    uwsgi_temp_path {out}/nginx-uwsgi;
    scgi_temp_path {out}/nginx-scgi;
{http}
    server {{
        listen 127.0.0.1:{port} {how} backlog=4096;
{server}
    }}
}}
"""

# Version 1.22 does not speak TLS 1.3 unless it is told to; the rest is as nginx has it.
NGINX_TLS = """
ssl_certificate {certificate};
ssl_certificate_key {key};
ssl_protocols TLSv1.2 TLSv1.3;
"""

NGINX_VALUE = """\
location / {{ return 200 "{body}"; }}
location /compressed {{
    gzip on;
    gzip_types text/plain;
    return 200 "{digits}";
}}
"""

# What nginx has to be quick with files.
NGINX_FILES_HTTP = f"""\
types {{
    text/html html;
    image/png png;
}}
default_type application/octet-stream;
etag on;
sendfile on;
tcp_nopush on;
gzip_static on;
open_file_cache max=20000 inactive=60s;
open_file_cache_valid 60s;
send_timeout {PATIENCE_SECONDS}s;
"""

# A subscriber begins with what is published after it came.
NCHAN_MODULE = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")
NCHAN_SERVER = """\
location / {
    nchan_subscriber eventsource websocket;
    nchan_channel_id bench;
    nchan_subscriber_first_message newest;
}
location /pub {
    nchan_publisher http;
    nchan_channel_id bench;
    nchan_message_buffer_length 32;
}
"""


class Stentor(Server):
    """One worker by default, with the look-up route of the finance pages or another `config`.

    With a `root` it serves the files beneath it. A `prefix` is a command that runs it. One that is
    `secured` is asked by TLS, and has a `plain_port` beside.
    """

    def __init__(self, bench: Bench, environment: dict[str, str] | None = None,
                 config: str = LOOKUP_CONFIG, workers: int = 1,
                 cores: str = str(SERVER_CORE), root: Path | None = None,
                 prefix: tuple[str, ...] = (), secured: bool = False,
                 name: str = "stentor") -> None:
        self.control_port = free_port()
        port = self.plain_port = free_port()
        ports, listen = [port], [f"127.0.0.1:{port}"]
        if secured:
            port = free_port()
            ports, listen = [port, *ports], [f"tls:127.0.0.1:{port}", *listen]
            self.scheme = "https"
        file = OUT_DIR / f"{name}.toml"
        file.write_text(config)
        super().__init__(name, [
            *prefix, bench.stentor, "serve", "-c", file,
            *(word for address in listen for word in ("--listen", address)),
            *(tls_flags() if secured else []),
            "--control", f"127.0.0.1:{self.control_port}", "--workers", workers,
            *(["--root", root] if root else []),
        ], *ports, self.control_port, environment=environment, cores=cores)

    def put(self, topic: str, value: bytes, content_type: str = "text/plain") -> str:
        """Publishes a value, and returns its id."""
        return client.publish_value(self.control_port, topic, value, content_type)

    def put_many(self, values: Iterable[tuple[str, str]]) -> None:
        """Publishes (topic, text) pairs in bulk."""
        client.publish_many(self.control_port, values)

    def wait_until_ready(self) -> None:
        """Returns when it serves all that it has, from its disk or from another server."""
        give_up = time.monotonic() + READY_SECONDS_MAX
        while client.ask(self.control_port, "GET", "/-/readyz")[0] != 200:
            if time.monotonic() > give_up:
                raise MeasurementError(f"{self.name} is not ready: {self.last_words()}")
            time.sleep(READY_EVERY_SECONDS)


@contextmanager
def ready(stentor: Stentor) -> Iterator[Stentor]:
    """One that serves all that it has."""
    with stentor:
        stentor.wait_until_ready()
        yield stentor


class NginxProcess(Server):
    """nginx as one process without logs, with what goes into its `http` and `server` blocks."""

    def __init__(self, name: str, http: str, server: str, modules: str = "",
                 secured: bool = False) -> None:
        port = free_port()
        if secured:
            self.scheme = "https"
            certificate, key = pair()
            server += NGINX_TLS.format(certificate=certificate, key=key)
        config = OUT_DIR / f"{name}.conf"
        config.write_text(NGINX_CONFIG.format(out=OUT_DIR, name=name, port=port, http=http,
                                              server=server, modules=modules,
                                              how="ssl" if secured else ""))
        super().__init__(name, ["nginx", "-p", OUT_DIR, "-e", "stderr", "-c", config], port)


class Nginx(NginxProcess):
    """`return 200` with a fixed body (which must need no quoting).

    /compressed is as much work as a request can be made here: digits, compressed for each.
    """

    def __init__(self, body: bytes, secured: bool = False) -> None:
        digits = random.Random(20240602).randbytes(1_500).hex()
        value = NGINX_VALUE.format(body=body.decode("ascii"), digits=digits)
        super().__init__("nginx", "default_type text/plain;", value, secured=secured)


class NginxFiles(NginxProcess):
    """The files beneath `root`, with all that nginx has to be quick with them."""

    def __init__(self, root: Path) -> None:
        super().__init__("nginx", NGINX_FILES_HTTP, f"root {root};")


class Floor(Server):
    """The bare epoll loop of floor.c, which answers every request with `response`."""

    def __init__(self, bench: Bench, response: bytes) -> None:
        port = free_port()
        file = OUT_DIR / "response.bin"
        file.write_bytes(response)
        super().__init__("floor", [bench.program("floor"), port, file], port)


class Nchan(NginxProcess):
    """nginx with the nchan module: one channel, one process; publishing is POST /pub."""

    def __init__(self, secured: bool = False) -> None:
        if not NCHAN_MODULE.exists():
            install("libnginx-mod-nchan")
        super().__init__("nchan", "", NCHAN_SERVER, f"load_module {NCHAN_MODULE};", secured)


def pair() -> tuple[Path, Path]:
    """A certificate of this host that nobody but itself has signed, and its key. All show the same:
    a signature by ECDSA costs a server a fraction of one by RSA."""
    certificate, key = OUT_DIR / "tls.crt", OUT_DIR / "tls.key"
    if not (certificate.exists() and key.exists()):
        subprocess.run([
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-noenc", "-days", "3650", "-subj", "/CN=localhost", "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext",
            "basicConstraints=critical,CA:FALSE", "-keyout", str(key), "-out", str(certificate),
        ], check=True, capture_output=True)
    return certificate, key


def tls_flags() -> list[object]:
    certificate, key = pair()
    return ["--tls-cert", certificate, "--tls-key", key]


@contextmanager
def readers_of_value(bench: Bench, topic: str, value: bytes) -> Iterator[dict[str, Server]]:
    """Stentor, nginx and the floor, which all answer a GET with the same value."""
    with Stentor(bench) as stentor, Nginx(value) as nginx:
        stentor.put(topic, value)
        for server in (stentor, nginx):
            expect_body(server, topic, value)
        with Floor(bench, get(stentor, topic)) as floor:
            yield {"stentor": stentor, "nginx": nginx, "floor": floor}


class FloorPush(Server):
    """The bare fan-out of floor_push.c, which answers every reader with `head`.

    What is published is sent between `before` and `behind`, and must be as long as the message
    for which these were captured.
    """

    def __init__(self, bench: Bench, head: bytes, before: bytes, behind: bytes) -> None:
        self.publish_port = free_port()
        port = free_port()
        files = []
        for name, content in (("head", head), ("before", before), ("behind", behind)):
            files.append(OUT_DIR / f"{name}.bin")
            files[-1].write_bytes(content)
        command = [bench.program("floor_push"), port, self.publish_port, *files]
        super().__init__("floor_push", command, port, self.publish_port)


def get(server: Server, path: str, *fields: str) -> bytes:
    """One GET; the whole answer exactly as it came. Anything but 200 is an error."""
    return client.raw(server.port, client.get(path, *fields), server.scheme)


def read(server: Server, path: str, **fields: str) -> bytes:
    """The body of a GET."""
    with client.Client(server.port, server.scheme) as connection:
        return connection.read(path, **fields)


def expect_body(server: Server, path: str, body: bytes, **fields: str) -> None:
    """What is about to be measured must be the right answer."""
    found = read(server, path, **fields)
    if found != body:
        raise MeasurementError(
            f"{server.name}: GET {path} answered {found[:80]!r}, not {body[:80]!r}")
