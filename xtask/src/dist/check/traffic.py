"""Readers of an event stream and a publisher, while the server is upgraded, stopped and started.

    traffic.py READERS PER_SECOND DIRECTORY

Publishes 0, 1, 2, ... until there is a file `stop` in the directory, each on a connection of its
own. Then it waits until every reader has the last value, unless there is a file `gone`: then the
server does not come back. Readers come back where their stream ends. It writes `ready` there once
all readers have heard something, and in the end prints a line. It fails if a PUT that was sent was
not answered, or a reader has missed a value, heard it twice or been told of a gap.
"""

import os
import selectors
import socket
import sys
import time

# How often a stream ended; a reader missed a value, heard it twice, or was told of a gap; a PUT had
# no answer, was told to come later, or found nobody.
COUNTS = ["dropped", "lost", "twice", "gaps", "unanswered", "later", "refused"]
PUBLIC, CONTROL = ("127.0.0.1", 8080), ("127.0.0.1", 8081)


class Reader:
    def __init__(self, traffic):
        self.traffic, self.id, self.value, self.socket = traffic, b"", None, None
        self.connect()

    def connect(self):
        try:
            self.socket = socket.create_connection(PUBLIC, timeout=10)
            last = b"Last-Event-ID: %s\r\n" % self.id if self.id else b""
            self.socket.sendall(b"GET /n HTTP/1.1\r\nHost: localhost\r\n"
                                b"Accept: text/event-stream\r\n%s\r\n" % last)
        except OSError:
            return self.come_again()
        self.buffer, self.is_stream = b"", False
        self.socket.setblocking(False)
        self.traffic.selector.register(self.socket, selectors.EVENT_READ, self)

    def come_again(self):
        self.traffic.away.append((time.monotonic() + 0.5, self))

    def hear(self):
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.traffic.selector.unregister(self.socket)
            self.socket.close()
            self.traffic.counts["dropped"] += self.is_stream
            return self.come_again()
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            name, _, value = line.rstrip(b"\r").partition(b": ")
            if name == b"id":
                self.id = value
            elif name == b"event" and value == b"gap":
                self.traffic.counts["gaps"] += 1
            elif name == b"Content-Type" and value == b"text/event-stream":
                self.is_stream = True
            elif name == b"data" and value.isdigit():
                self.count(int(value))

    def count(self, value):
        expected = value if self.value is None else self.value + 1
        self.traffic.counts["lost"] += max(0, value - expected)
        self.traffic.counts["twice"] += value < expected
        self.value = value


class Traffic:
    def __init__(self, readers, per_second, directory):
        self.selector, self.away, self.directory = selectors.DefaultSelector(), [], directory
        self.counts = dict.fromkeys(COUNTS, 0)
        self.interval, self.published = 1 / per_second, 0
        self.readers = [Reader(self) for _ in range(readers)]

    def says(self, name):
        return os.path.exists(os.path.join(self.directory, name))

    def put(self):
        """Publishes the next value, if the server takes connections."""
        body = b"%d" % self.published
        try:
            client = socket.create_connection(CONTROL, timeout=10)
        except OSError:
            self.counts["refused"] += 1
            return
        answer = b""
        try:
            client.sendall(b"PUT /n HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                           b"Content-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s"
                           % (len(body), body))
            while part := client.recv(4096):
                answer += part
        except OSError as error:
            answer += str(error).encode()
        client.close()
        if answer.startswith(b"HTTP/1.1 503") and b"\r\nRetry-After: " in answer:
            self.counts["later"] += 1
            return
        if not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
            print("unanswered:", body, answer[:300], flush=True)
            self.counts["unanswered"] += 1
        self.published += 1

    def listen(self, until):
        while (left := until - time.monotonic()) > 0:
            now = time.monotonic()
            due = [reader for at, reader in self.away if at <= now]
            self.away = [(at, reader) for at, reader in self.away if at > now]
            for reader in due:
                reader.connect()
            for key, _ in self.selector.select(min(left, 0.05)):
                key.data.hear()

    def run(self):
        # Counts from before this run do not belong to it.
        self.put()
        is_ready = False
        while not self.says("stop"):
            until = time.monotonic() + self.interval
            self.put()
            self.listen(until)
            if not is_ready and all(reader.value is not None for reader in self.readers):
                is_ready = True
                open(os.path.join(self.directory, "ready"), "w").close()
        until = time.monotonic() + 30
        while not self.says("gone") and time.monotonic() < until and self.behind():
            self.listen(time.monotonic() + 0.1)
        if not self.says("gone"):
            self.counts["behind"] = self.behind()
        said = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        print(f"{len(self.readers)} readers, {self.published} PUTs: {said}", flush=True)
        failed = ["lost", "twice", "gaps", "unanswered", "behind"]
        sys.exit(any(self.counts.get(name) for name in failed))

    def behind(self):
        return sum(reader.value != self.published - 1 for reader in self.readers)


Traffic(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]).run()
