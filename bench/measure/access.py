"""What it costs that some may read what others may not: rules, tokens, readers who come back."""

import base64
import hashlib
import hmac
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from . import table
from .bench import OUT_DIR, Bench, MeasurementError
from .client import IP_BIND_ADDRESS_NO_PORT, RESET_ON_CLOSE, stream
from .load import Series, Subject, alternate
from .reading import TOPIC, VALUE, cpu_row
from .servers import Stentor, expect_body

PRIVATE = "/team/plan"
SECRET = "stentor_bench-of-access-0123456789abcdefghijklm"
JWT_SECRET = b"bench of access, 32 bytes or more"
CONFIG = f"""\
[streams]
heartbeat = "0s"
[[topics]]
match = "/team/**"
read = "token"
[[token]]
name = "bench"
sha256 = "{hashlib.sha256(SECRET.encode()).hexdigest()}"
read = "/team/**"
[jwt]
secret_file = "{OUT_DIR}/jwt.secret"
public_key_file = "{OUT_DIR}/jwt.pem"
"""
READERS = 15_000
READERS_PER_ADDRESS = 4_096
UNDER_WAY = 64


def access(bench: Bench) -> list[table.Row]:
    """What it costs that some may read what others may not."""
    return table.each(table.named(requests, memory, storm), bench, make_keys())


Sign = Callable[[bytes], bytes]


def make_keys() -> Sign | None:
    """Writes the keys that servers are to know, and returns what signs by ES256, if there is
    anything that can."""
    (OUT_DIR / "jwt.secret").write_bytes(JWT_SECRET)
    try:
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    except ImportError:
        raise MeasurementError("python3-cryptography is missing, which makes the keys") from None
    key = ec.generate_private_key(ec.SECP256R1())
    (OUT_DIR / "jwt.pem").write_bytes(key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))

    def sign(message: bytes) -> bytes:
        r, s = decode_dss_signature(key.sign(message, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return sign


def by_secret(message: bytes) -> bytes:
    return hmac.digest(JWT_SECRET, message, "sha256")


def jwt(algorithm: str, sign: Sign, subject: int, patterns: list[str]) -> str:
    def part(data: bytes) -> bytes:
        return base64.urlsafe_b64encode(data).rstrip(b"=")
    claims = {"sub": f"reader-{subject}", "exp": int(time.time()) + 3_600,
              "stentor": {"read": patterns}}
    signed = b".".join(part(json.dumps(data).encode())
                       for data in ({"alg": algorithm, "typ": "JWT"}, claims))
    return b".".join((signed, part(sign(signed)))).decode()


def requests(bench: Bench, _: Sign) -> list[table.Row]:
    """GETs of a public value with rules and without, and of a private one with a token."""
    with Stentor(bench, config="") as without, Stentor(bench, config=CONFIG) as with_rules:
        for server in (without, with_rules):
            server.put(TOPIC, VALUE)
            server.put(PRIVATE, VALUE)
            expect_body(server, TOPIC, VALUE)
        bearer = f"Bearer {SECRET}"
        expect_body(with_rules, PRIVATE, VALUE, Authorization=bearer)
        series = alternate(bench.options, [
            Subject("without rules", without, TOPIC),
            Subject("public", with_rules, TOPIC),
            Subject("private", with_rules, PRIVATE, fields=(f"Authorization: {bearer}",)),
        ])
    return [
        cpu_row("GET of a public value, with rules that others are private", series, "public",
                "without rules", table.at_most(1.02)),
        cpu_row("GET of a private value with a token", series, "private", "public",
                table.at_most(1.15)),
    ]


@dataclass(frozen=True)
class Cost:
    """What readers were for the server, each."""

    cpu_us: float
    bytes: float


def memory(bench: Bench, _: Sign) -> list[table.Row]:
    """Process memory of a reader: of what is public, of what is private by a token like that of all
    others, and by one that nobody else has."""
    shared = jwt("HS256", by_secret, 0, ["/team/**"])
    own = [jwt("HS256", by_secret, n, [PRIVATE, f"/team/of/{n}"]) for n in range(READERS)]
    kinds: list[tuple[str, Callable[[int], bytes], float | None]] = [
        ("of a public topic", lambda _: request(TOPIC), None),
        ("of a private one, all with the same permissions",
         lambda _: request(PRIVATE, shared), 100),
        ("of a private one, each with its own", lambda n: request(PRIVATE, own[n]), 200),
    ]
    rows = []
    for name, head, bound in kinds:
        with Stentor(bench, config=CONFIG) as stentor:
            stentor.put(TOPIC, VALUE)
            stentor.put(PRIVATE, VALUE)
            with readers(stentor, 1_000, head, 9):
                pass
            time.sleep(1)
            with readers(stentor, READERS, head, 0) as cost:
                pass
        target = table.at_most(bound, " B") if bound else None
        rows.append(table.absolute_row(f"reader {name}: process memory", f"{cost.bytes:.0f} B",
                                       cost.bytes, target))
    return rows


def storm(bench: Bench, sign: Sign) -> list[table.Row]:
    """Readers who all come at once, each with a token of its own: before the server has seen any
    of them, and when it has."""
    tokens = {"HS256": by_secret, "ES256": sign}
    costs: dict[str, list[float]] = {}
    for turn in range(bench.options.rounds):
        with Stentor(bench, config=CONFIG) as stentor:
            stentor.put(TOPIC, VALUE)
            stentor.put(PRIVATE, VALUE)
            with readers(stentor, READERS, lambda _: request(TOPIC), 0):
                pass
            plans = [("without tokens", lambda _: request(TOPIC))]
            for name, key in tokens.items():
                own = [jwt(name, key, n, ["/team/**"]) for n in range(READERS)]
                head = lambda n, own=own: request(PRIVATE, own[n])
                plans += [(name, head), (f"{name} again", head)]
            for place, (name, head) in enumerate(plans):
                with readers(stentor, READERS, head, place + 1) as cost:
                    costs.setdefault(name, []).append(cost.cpu_us)
    rows = []
    bounds = {"HS256": table.at_most(1.3)}
    for name in ("HS256", "HS256 again", "ES256", "ES256 again"):
        rows.append(Series(costs).row(
            f"{READERS:,} readers come, each with a token by {name}: CPU each", name,
            "without tokens", float, "{:.1f} us", bounds.get(name)))
    return rows


def request(path: str, token: str = "") -> bytes:
    return stream(path, *([f"Authorization: Bearer {token}"] if token else []))


@contextmanager
def readers(stentor: Stentor, count: int, head: Callable[[int], bytes],
            place: int) -> Iterator[Cost]:
    """So many streams, from addresses of their own `place`, and what their coming took."""
    before_cpu, before_bytes = stentor.cpu_seconds(), stentor.memory().anonymous
    open_streams: list[socket.socket] = []
    try:
        for first in range(0, count, UNDER_WAY):
            wave = range(first, min(first + UNDER_WAY, count))
            for n in wave:
                reader = socket.socket()
                open_streams.append(reader)
                reader.setsockopt(socket.SOL_IP, IP_BIND_ADDRESS_NO_PORT, 1)
                reader.bind((f"127.2.{place}.{1 + n // READERS_PER_ADDRESS}", 0))
                reader.settimeout(10)
                reader.connect(("127.0.0.1", stentor.port))
                reader.sendall(head(n))
            for n in wave:
                answer = open_streams[n].recv(4_096)
                if not answer.startswith(b"HTTP/1.1 200 "):
                    raise MeasurementError(f"reader {n} was answered {answer[:80]!r}")
        time.sleep(0.3)
        yield Cost((stentor.cpu_seconds() - before_cpu) * 1e6 / count,
                   (stentor.memory().anonymous - before_bytes) / count)
    finally:
        for reader in open_streams:
            # Ended by a reset: nothing of them is left when the next ones come.
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            reader.close()
        time.sleep(0.5)
