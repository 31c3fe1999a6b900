"""Follows topics of a Stentor server over any interruption: an example to copy from.

    python3 follow.py http://127.0.0.1:8080 '/scores/*' /news

It prints each item as a line of JSON. The file of STENTOR_TOKEN_FILE has a token, if one is needed.
"""

import base64
import contextlib
import http.client as http
import json
import os
import random
import sys
import time
from urllib.parse import urlencode, urlsplit


class Refused(Exception):
    """The server does not serve this request, however often it is made: (code, detail)."""


class TokenEnded(Refused):
    """The next connection needs another token."""


class Follower:
    """Iterates over the items of topics and patterns, for ever.

    An item with a `topic` is a message with `data`, or with `deleted` a deletion. At a `gap` whose
    `resume` is `values` forget what you know: the current values follow.
    """

    def __init__(self, server, topics, since=None, token=lambda: None):
        self.server, self.topics, self.since, self.token = urlsplit(server), topics, since, token
        self.retry_s, self.least_s = 2.0, 0.0

    def __iter__(self):
        token, failures = self.token(), 0
        while True:
            begin_s, self.least_s = time.monotonic(), 0.0
            try:
                yield from self.stream(token)
            except TokenEnded:
                if (token := self.token()) is None:
                    raise
            except (OSError, http.HTTPException, ValueError) as problem:
                print(f"{problem!r}: trying again", file=sys.stderr)
            failures = 0 if time.monotonic() - begin_s > 10 else min(failures + 1, 5)
            pause_s = min(30, self.retry_s * 2**failures) * random.uniform(0.5, 1)
            time.sleep(max(pause_s, self.least_s))

    def stream(self, token):
        query = urlencode({"topic": self.topics, "since": self.since or ""}, doseq=True)
        fields = {"Authorization": f"Bearer {token}"} if token else {}
        fields["Accept"] = "text/event-stream"
        kind = http.HTTPSConnection if self.server.scheme == "https" else http.HTTPConnection
        with contextlib.closing(kind(self.server.netloc, timeout=10)) as connection:
            connection.request("GET", f"{self.server.path}/-/events?{query}", headers=fields)
            socket = connection.sock
            with connection.getresponse() as response:
                if response.headers.get_content_type() != "text/event-stream":
                    self.rejected(response)
                beat_s = float(response.headers.get("Stentor-Heartbeat", 15))
                socket.settimeout(2 * beat_s + 10 if beat_s else 600)  # After that it is dead.
                block = ""
                for line in map(bytes.decode, response):
                    if line.startswith("retry: "):
                        self.retry_s = int(line[7:]) / 1000
                    elif line.startswith("data: "):
                        block += line[6:]
                    elif line == "\n" and block:
                        yield from self.received(json.loads(block))
                        block = ""

    def received(self, item):
        if "end" in item:
            raise TokenEnded(item["end"]["reason"], "The stream has ended.")
        self.since = item.get("id", item.get("cursor", self.since))
        if item.get("gap", {}).get("resume") == "values":
            self.since = None
        if "data_base64" in item:
            item["data"] = base64.b64decode(item.pop("data_base64"))
        if item.keys() & {"topic", "gap", "access"}:  # Notices of other kinds are ignored.
            yield item

    def rejected(self, response):
        status, code = response.status, response.headers.get("Stentor-Error")
        detail = response.read(65536).decode(errors="replace")  # For people; programs use the code.
        if 400 <= status < 500 and status not in (408, 429):
            raise (TokenEnded if status == 401 else Refused)(code, detail)
        self.least_s = float(response.headers.get("Retry-After", 0))
        raise http.HTTPException(f"{status} {code}: {detail}")


if __name__ == "__main__":
    file = os.environ.get("STENTOR_TOKEN_FILE", os.devnull)
    read = lambda: open(file).read().strip() or None
    for each in Follower(sys.argv[1], sys.argv[2:], token=read):
        print(json.dumps(each, default=repr), flush=True)
