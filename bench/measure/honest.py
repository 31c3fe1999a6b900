"""Those without whom some attacks would be none."""

import time
from collections.abc import Iterator

from . import servers
from .bench import MeasurementError


class Publisher(servers.Publisher):
    """An honest publisher on the control listener, in a process of its own."""

    def put(self, topic: str, value: bytes, **fields: str) -> None:
        """Publishes. After a failure the next message opens a new connection."""
        try:
            super().put(topic, value, **fields)
        except MeasurementError:
            self.connection.close()

    def steps(self, per_second: float) -> Iterator[int]:
        """For ever, since it is ended from outside; what it could not do in time is left out."""
        due = time.monotonic()
        step = 0
        while True:
            yield step
            step += 1
            due = max(due + 1 / per_second, time.monotonic() - 1)
            time.sleep(max(due - time.monotonic(), 0))
