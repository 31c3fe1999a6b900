"""Stands between the two processes of an upgrade, and passes on what they say until a step of it.

    between.py STEP DEED PROGRAM [ARGUMENT...]

It is started in place of the program, and starts that. What server/handover.rs and
epoll/handover.rs call messages has names here: `hello` is the first one between the processes,
`w-numbers` the first one between any two of their workers. `w-end` stands also for what there is
not always.

    kill          the next process is killed before this message is passed on
    kill-first    the process that started this one is killed
    stop-first    that one is told to stop, and this message is passed on
    hang          the next process stands still, and nothing is passed on any more
    wait          this message is passed on two seconds later
    fall-silent   the next process is killed, and who started it only hears that nothing more comes
    form=N        of `hello`: the one that hands over says that its state has the form N
    version=N     of `w-packed`: workers are packed in the version N of their format
    list          of `hello`: what is said is named when it is said first
"""

import ctypes
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time

MAIN = ["", "hello", "ready", "refused", "snapshot", "entries", "store", "stands-still", "counters",
        "", "gone-on", "copied", "state"]
WORKERS = ["", "w-numbers", "w-mark", "w-changed", "w-listener", "w-set", "", "w-end",
           "w-files", "w-packed"]
# There may be nothing to say.
OPTIONAL = ["entries", "store", "w-changed", "w-files"]
PR_SET_PDEATHSIG = 1
BYTES_MAX, FILES_MAX = 1 + 64 * 1024, 253


def end_with_parent():
    """However this process ends: nobody else knows of the next one."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def log(text):
    """One write a line, for the server writes to the same pipe. Unbuffered, `print` makes two."""
    os.write(sys.stderr.fileno(), f"between: {text}\n".encode())


class Between:
    def __init__(self, step, deed, command):
        self.step, self.deed = step, deed
        self.said = set()
        self.first = os.getppid()
        # The process that takes over, once it has said which: a child of the one started here.
        self.server = None
        self.channel = socket.socket(fileno=int(os.environ["STENTOR_HANDOVER"]))
        self.channel.set_inheritable(False)
        own, passed = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {**os.environ, "STENTOR_HANDOVER": str(passed.fileno())}
        self.next = subprocess.Popen(command, env=environment, pass_fds=[passed.fileno()],
                                     preexec_fn=end_with_parent)
        passed.close()
        signal.signal(signal.SIGTERM, lambda *_: self.send(signal.SIGTERM))
        self.selector = selectors.DefaultSelector()
        self.pair(self.channel, own, MAIN)

    def pair(self, first, next_, names):
        """What one says the other one hears."""
        for source, sink in [(first, next_), (next_, first)]:
            self.watch(source, lambda source=source, sink=sink: self.pass_on(source, sink, names))

    def watch(self, source, act):
        self.selector.register(source, selectors.EVENT_READ, act)

    def run(self):
        while True:
            for key, _ in self.selector.select():
                key.data()

    def pass_on(self, source, sink, names):
        message = b""
        # A process that has not read all resets: the kernel says so once, and shows what it said.
        for _ in range(2):
            try:
                message, files, _, _ = socket.recv_fds(source, BYTES_MAX, FILES_MAX)
                break
            except ConnectionResetError:
                pass
        if not message:
            self.selector.unregister(source)
            if names is MAIN and sink is self.channel:
                # The next process wants no more of this one, which ends as that one does.
                sys.exit(self.next.wait() % 256)
            sink.shutdown(socket.SHUT_WR)
            return
        name = names[message[0]] if message[0] < len(names) else ""
        if self.deed == "list" and name not in self.said:
            self.said.add(name)
            log(f"said {name or message[0]}")
        if name == "ready":
            (self.server,) = struct.unpack_from("<I", message, 1)
        if self.deed != "list" and name in [self.step, self.step in OPTIONAL and "w-end"]:
            message = self.act(message)
        if name == "ready":
            message = message[:1] + self.listen(message[1:])
        try:
            socket.send_fds(sink, [message], files)
        except BrokenPipeError:
            # It has refused, and said so.
            pass
        for file in files:
            os.close(file)

    def act(self, message):
        log(f"{self.step} {self.deed}")
        name, _, value = self.deed.partition("=")
        numbers = [int(number) for number in value.split(",") if number]
        if name == "form":
            return message[:5] + struct.pack("<Q", *numbers) + message[13:]
        if name == "version":
            return message[:9] + struct.pack("<H", *numbers) + message[11:]
        if name == "kill-first":
            os.kill(self.first, signal.SIGKILL)
        elif name == "stop-first":
            os.kill(self.first, signal.SIGTERM)
            # Other messages of this name follow, and a second signal would end it at once.
            self.step = None
        elif name == "hang":
            self.send(signal.SIGSTOP)
            signal.pause()
        elif name == "wait":
            time.sleep(2)
        elif name == "fall-silent":
            self.send(signal.SIGKILL)
            self.channel.close()
            signal.pause()
        else:
            self.send(signal.SIGKILL)
            self.next.wait()
            os.kill(os.getpid(), signal.SIGKILL)
        return message

    def send(self, number):
        os.kill(self.server or self.next.pid, number)

    def listen(self, names):
        """Workers find this process where they would have found the others. The first four bytes
        are the process."""
        told = struct.pack("<I", os.getpid())
        place = len(told) + 4
        (count,) = struct.unpack_from("<I", names, place - 4)
        told += struct.pack("<I", count)
        for _ in range(count):
            (length,) = struct.unpack_from("<I", names, place)
            theirs = names[place + 4:place + 4 + length]
            place += 4 + length
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listener.bind("")
            listener.listen(1)
            own = listener.getsockname()[1:]
            told += struct.pack("<I", len(own)) + own
            self.watch(listener, lambda own=listener, name=theirs: self.meet(own, name))
        return told + names[place:]

    def meet(self, listener, theirs):
        first, _ = listener.accept()
        self.selector.unregister(listener)
        listener.close()
        next_ = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        next_.connect(b"\0" + theirs)
        self.pair(first, next_, WORKERS)


if __name__ == "__main__":
    Between(sys.argv[1], sys.argv[2], sys.argv[3:]).run()
