"""Runs tlsfuzzer against stentor-tls, and what fails against plain rustls too.

With --server it is run against that binary, `stentor serve`, instead of the example of the crate.

What is printed is the table of crates/stentor-tls/SUITES.md: of each script how many conversations
passed, how many failed that fail with plain rustls as well, and those that fail here alone, which
are defects.

  git clone https://github.com/tlsfuzzer/tlsfuzzer
  python3 -m venv venv && venv/bin/pip install --pre tlslite-ng gmpy2
  hostile/run tls-suites tlsfuzzer --python venv/bin/python
  hostile/run tls-suites tlsfuzzer --python venv/bin/python --server target/release/stentor

Exit status: 0 if plain rustls passes nothing that fails here, 1 if it does, 2 for wrong usage.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from measure.bench import OUT_DIR
from measure.process import ALL_CORES, Server, free_port

ROOT = Path(__file__).resolve().parent.parent
CIPHER = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
PER_SCRIPT = 200
SECONDS = 900

# What measures time or drives a capture, and is no conversation that passes or fails; what wants a
# server that sends back what it is sent.
LEFT_OUT = re.compile(r"timing|minerva|lucky13|rsa-keys|marvin|-lengths")

ARGUMENTS = {
    "test-tls13-count-tickets.py": ["-t", "1"],
    "test-downgrade-protection.py": ["--server-max-protocol=TLSv1.3"],
    "test-fallback-scsv.py": ["--tls-1.3"],
    "test-export-ciphers-rejected.py": ["--min-ver", "TLSv1.2"],
    "test-signature-algorithms.py": [],
    "test-chacha20.py": ["--extra-exts"],
    "test-ocsp-stapling.py": ["--no-status"],
}

# They say that they know -n, and do not.
NO_LIMIT = {"test-tls13-certificate-request.py",
            "test-extended-master-secret-extension-with-client-cert.py"}

# What speaks to a server with an ECDSA certificate.
ECDSA = re.compile(r"test-(tls13-ecdsa-support|ecdsa-sig-flexibility)\.py")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tlsfuzzer", type=Path, help="a checkout of tlsfuzzer")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only scripts whose name has this")
    parser.add_argument("--python", default=sys.executable, help="a Python that has tlslite-ng")
    parser.add_argument("--server", type=Path, metavar="STENTOR",
                        help="run against this server, and not against the example")
    parser.add_argument("--jobs", type=int, default=4, metavar="N",
                        help="scripts that run side by side; most of them wait (4)")
    parser.add_argument("--json", type=Path, metavar="FILE",
                        help="why each failed, as a line for each script, which is written at once")
    parser.add_argument("--limit", type=int, default=PER_SCRIPT, metavar="N",
                        help=f"conversations of a script, drawn at random ({PER_SCRIPT}; 0: all)")


class Servers:
    """The server in all its forms, each on a port of its own; the plain one is the example's."""

    def __init__(self, example: Path, stentor: Path | None, directory: Path) -> None:
        self.directory = directory
        self.example = example
        self.stentor = stentor
        self.lock = threading.Lock()
        (directory / "site").mkdir()
        (directory / "site/index.html").write_text("hello\n")
        (directory / "client.toml").write_text(f'control_client_ca = "{directory}/ca.pem"\n')
        (directory / "none.toml").write_text("")
        self.running: dict[tuple[str, ...], Server] = {}
        self.certificate("ca", "rsa:2048")
        for name, key in (("rsa", "rsa:2048"), ("ecdsa", "ec"), ("client", "rsa:2048"),
                          ("client-ecdsa", "ec")):
            self.certificate(name, key, "ca")

    def certificate(self, name: str, key: str, issuer: str = "") -> None:
        at = self.directory
        curve = ["-pkeyopt", "ec_paramgen_curve:P-256"] if key == "ec" else []
        extensions = [f"basicConstraints=critical,CA:{'FALSE' if issuer else 'TRUE'}"]
        signed = []
        if issuer:
            extensions.append("subjectAltName=DNS:localhost,IP:127.0.0.1")
            signed = ["-CA", at / f"{issuer}.pem", "-CAkey", at / f"{issuer}.key"]
        run("openssl", "req", "-x509", "-newkey", key, *curve, "-nodes", "-keyout",
            at / f"{name}.key", "-subj", f"/CN={name}", "-days", "30", "-sha256", *signed,
            *(word for one in extensions for word in ("-addext", one)), "-out", at / f"{name}.pem")

    def port(self, *form: str) -> int:
        """The port of such a server, which is started if there is none."""
        with self.lock:
            running = self.running.get(form)
            if running and running.is_running():
                return running.port
            if running:
                print(f"the server {form} has ended", file=sys.stderr)
            port = free_port()
            self.running[form] = Server(f"tls-{'-'.join(form)}", self.command(form, port), port,
                                        cores=ALL_CORES)
            return port

    def command(self, form: tuple[str, ...], port: int) -> list[object]:
        key = "ecdsa" if "ecdsa" in form else "rsa"
        certificate = self.directory / f"{key}.pem"
        if self.stentor and "plain" not in form:
            # Client certificates are asked for at the control listener alone.
            ours, other = f"tls:127.0.0.1:{port}", f"127.0.0.1:{free_port()}"
            public, control = (other, ours) if "client" in form else (ours, other)
            config = "client.toml" if "client" in form else "none.toml"
            return [self.stentor, "serve", "-c", self.directory / config, "--listen", public,
                    "--control", control, "--root", self.directory / "site", "--workers", "1",
                    "--tls-cert", certificate, "--tls-key", certificate.with_suffix(".key")]
        flags: list[object] = ["--plain-rustls"] if "plain" in form else []
        if "client" in form:
            flags += ["--client-ca", self.directory / "ca.pem"]
            # An operator has to have one.
            flags += [] if self.stentor else ["--client-optional"]
        return [self.example, *flags, f"127.0.0.1:{port}", certificate,
                certificate.with_suffix(".key")]

    def stop(self) -> None:
        for server in self.running.values():
            server.stop()


def run(*command: object) -> None:
    subprocess.run(list(map(str, command)), check=True, capture_output=True)


class Script:
    """A script of tlsfuzzer, and how it is called."""

    def __init__(self, path: Path, python: str, servers: Servers, directory: Path) -> None:
        self.path, self.python, self.servers, self.directory = path, python, servers, directory
        text = self.call("--help")[0]
        has = lambda flag: re.search(rf"^ {re.escape(flag)}\b", text, re.M)  # noqa: E731
        self.has_limit = path.name not in NO_LIMIT
        self.arguments = list(ARGUMENTS.get(path.name, []))
        self.form = ["ecdsa" if ECDSA.match(path.name) else "rsa"]
        is_tls13 = path.name.startswith("test-tls13")
        if has("-C") and not is_tls13:
            self.arguments += ["-C", CIPHER]
        elif has("-d") and not is_tls13:
            self.arguments += ["-d"]
        if has("-k") and has("-c"):
            name = "client-ecdsa" if "ecdsa-in" in path.name else "client"
            self.arguments += ["-k", str(directory / f"{name}.key"),
                               "-c", str(directory / f"{name}.pem")]
            self.form.append("client")

    def call(self, *arguments: str) -> tuple[str, bool]:
        command = [self.python, self.path, *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS,
                                  cwd=self.path.parent.parent)
            return done.stdout + done.stderr, True
        except subprocess.TimeoutExpired as expired:
            return (expired.stdout or b"").decode(errors="replace"), False

    def run(self, kind: str, limit: int, names: list[str]) -> dict:
        port = self.servers.port(*([kind] if kind == "plain" else []), *self.form)
        arguments = [*self.arguments, "-h", "127.0.0.1", "-p", str(port)]
        if self.has_limit:
            arguments += ["-n", "0" if names else str(limit)]
        output, ended = self.call(*arguments, *names)
        return outcome(output, ended)


def outcome(output: str, ended: bool) -> dict:
    """What passed, and why what failed did."""
    failed: dict[str, str] = {}
    passed: list[str] = []
    name = ""
    for line in output.splitlines():
        if line.endswith(" ..."):
            name = line[:-4]
        elif line == "OK":
            passed.append(name)
        elif re.match(r"[A-Za-z_.]*(Error|Exception|Alert|Abort)\w*(:|$)", line) and name:
            failed[name] = line
    if not ended:
        failed.setdefault("(it did not end)", "")
    elif "Test end" not in output and not failed:
        failed["(it did not begin)"] = output.strip().splitlines()[-1] if output.strip() else ""
    return {"passed": passed, "failed": failed}


def main(args: argparse.Namespace) -> int:
    scripts = sorted((args.tlsfuzzer / "scripts").glob("test-*.py"))
    if not scripts:
        print(f"{args.tlsfuzzer} has no scripts", file=sys.stderr)
        return 2
    subprocess.run(["cargo", "build", "--profile", "test", "-p", "stentor-tls", "--example",
                    "serve"], check=True, cwd=ROOT)
    binary = ROOT / "target/debug/examples/serve"
    defects = 0
    with tempfile.TemporaryDirectory() as directory:
        OUT_DIR.mkdir(exist_ok=True)
        servers = Servers(binary, args.server, Path(directory))
        scripts = [path for path in modern(args.tlsfuzzer, Path(directory) / "tlsfuzzer")
                   if not LEFT_OUT.search(path.name)
                   and (not args.names or any(name in path.name for name in args.names))]

        def one(path: Path) -> Compared:
            return compare(Script(path.absolute(), args.python, servers, Path(directory)), args)

        try:
            print("| script | passed | fails with plain rustls too | fails here alone |")
            print("|---|---|---|---|", flush=True)
            with ThreadPoolExecutor(args.jobs) as pool:
                for row, alone, line in pool.map(one, scripts):
                    print(row, flush=True)
                    defects += alone
                    if args.json:
                        with args.json.open("a") as file:
                            file.write(json.dumps(line) + "\n")
        finally:
            servers.stop()
    return 1 if defects else 0


def modern(checkout: Path, copy: Path) -> list[Path]:
    """A copy whose scripts offer AES-GCM where they would offer ECDHE with CBC, which is not served
    here: else most of those for TLS 1.2 would end at once."""
    for part in ("scripts", "tlsfuzzer", "tests"):
        shutil.copytree(checkout / part, copy / part, symlinks=True)
    for file in (copy / "tlsfuzzer/_apps").glob("*.py"):
        text = file.read_text()
        text = re.sub(r"(TLS_ECDHE_(?:RSA|ECDSA)_WITH_AES_128)_CBC_SHA\b", r"\1_GCM_SHA256", text)
        file.write_text(text)
    return sorted((copy / "scripts").glob("test-*.py"))


# A row of the table, how many fail here alone, and all that is known.
Compared = tuple[str, int, dict]


def compare(script: Script, args: argparse.Namespace) -> Compared:
    ours = script.run("ours", args.limit, [])
    names = [name for name in ours["failed"] if not name.startswith("(")]
    plain = script.run("plain", args.limit, names) if ours["failed"] else {"failed": {}}
    unknown = set(names) - set(plain["failed"]) - set(plain.get("passed", []))
    if unknown:
        # Names with something random in them: whether any of their kind fails likewise.
        plain["failed"] |= script.run("plain", args.limit, [])["failed"]
    kinds = {(kind(name), kind(why)) for name, why in plain["failed"].items()}
    alone = [name for name, why in ours["failed"].items() if name not in plain["failed"]
             and not (name in unknown and (kind(name), kind(why)) in kinds)]
    both = len(ours["failed"]) - len(alone)
    shown = "; ".join(alone[:5]) + (f"; {len(alone) - 5} more" if len(alone) > 5 else "")
    name = script.path.name.removeprefix("test-").removesuffix(".py")
    row = f"| {name} | {len(ours['passed'])} | {both or ''} | {shown} |"
    return row, len(alone), {
        "script": name, "arguments": script.arguments, "passed": len(ours["passed"]),
        "failed": ours["failed"], "plain": plain["failed"], "alone": alone}


def kind(name: str) -> str:
    return re.sub(r"\d[\d,]*", "N", name)
