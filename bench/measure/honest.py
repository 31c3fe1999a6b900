"""Those without whom some attacks would be none."""

import http.client
import json
import time
from collections.abc import Iterator


class Publisher:
    """An honest publisher on the control listener, in a process of its own."""

    def __init__(self, port: int, public_port: int) -> None:
        self.port = port
        self.public_port = public_port
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def put(self, topic: str, body: bytes, **fields: str) -> str:
        """Publishes, and returns the message's id; an empty one if that failed."""
        names = {name.replace("_", "-"): value for name, value in fields.items()}
        try:
            self.connection.request("PUT", topic, body, {"Content-Type": "text/plain", **names})
            answer = json.loads(self.connection.getresponse().read())
            return str(answer.get("id", ""))
        except (OSError, ValueError, http.client.HTTPException):
            self.connection.close()
            return ""

    def steps(self, per_second: float) -> Iterator[int]:
        """For ever, since it is ended from outside; what it could not do in time is left out."""
        due = time.monotonic()
        step = 0
        while True:
            yield step
            step += 1
            due = max(due + 1 / per_second, time.monotonic() - 1)
            time.sleep(max(due - time.monotonic(), 0))
