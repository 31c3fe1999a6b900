"""What an order that a broker keeps costs: how late all nodes have a message, and whose time it
takes. What happens when everything fails is the matter of bench/cluster."""

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from . import table
from .bench import Bench, require_tools
from .client import Client
from .following import (
    CONFIG,
    RATE,
    SECONDS,
    TOPICS_MANY,
    delivery_p99_ms,
    publish_steadily,
    topics_many,
)
from .process import Server, free_port
from .servers import Stentor, ready

NODES = 3


def clustered(bench: Bench) -> list[table.Row]:
    """What an order of three nodes and a broker costs, and how late all have a message."""
    require_tools(["nats-server"])
    return table.each(table.named(cost, lag, start), bench)


@contextmanager
def broker_of(settings: str = "") -> Iterator[tuple[Server, str]]:
    """A broker, and the configuration of nodes that publish by it."""
    with ExitStack() as stack:
        store, port = stack.enter_context(tempfile.TemporaryDirectory()), free_port()
        broker = stack.enter_context(Server("broker", [
            "nats-server", "--jetstream", "--store_dir", store, "--addr", "127.0.0.1",
            "--port", str(port)], port, cores="0,1"))
        yield broker, f"{CONFIG}[cluster]\nnats = 'nats://127.0.0.1:{port}'\n{settings}"


@contextmanager
def cluster(bench: Bench) -> Iterator[tuple[Server, list[Stentor]]]:
    """A broker, and nodes that publish by it."""
    with ExitStack() as stack:
        broker, config = stack.enter_context(broker_of())
        nodes = [stack.enter_context(Stentor(bench, config=config, cores="0,1", name=f"node{n}"))
                 for n in range(NODES)]
        for node in nodes:
            node.wait_until_ready()
        yield broker, nodes


def cost(bench: Bench) -> list[table.Row]:
    """The time of a broker and of nodes for a message, beside that of a server by itself."""
    with Stentor(bench, config=CONFIG, cores="0,1") as alone:
        publish_steadily(alone, 1)
        by_itself = cpu_of_publishing(alone, [alone])[0]
    with cluster(bench) as (broker, nodes):
        publish_steadily(nodes[0], 1)
        of_broker, *of_nodes = cpu_of_publishing(nodes[0], [broker, *nodes])
    what = f"cluster of {NODES} nodes at {RATE:,} messages/s: CPU per message"
    reading = max(of_nodes[1:])
    return [
        table.absolute_row(f"{what}, of the broker", f"{of_broker:.2f} us", of_broker,
                           table.at_most(4, " us")),
        table.absolute_row(f"{what}, of a node that reads", f"{reading:.2f} us", reading,
                           table.at_most(3, " us")),
        table.note(f"{what}, of the node that publishes", f"{of_nodes[0]:.2f} us",
                   f"a server by itself {by_itself:.2f} us"),
    ]


def cpu_of_publishing(publishing: Stentor, servers: list[Server]) -> list[float]:
    """Microseconds of each for a message."""
    before = [server.cpu_seconds() for server in servers]
    messages = publish_steadily(publishing, SECONDS)
    # Who reads may be a moment behind.
    time.sleep(0.5)
    after = [server.cpu_seconds() for server in servers]
    return [(b - a) / messages * 1e6 for a, b in zip(before, after, strict=True)]


def lag(bench: Bench) -> list[table.Row]:
    """How long a message takes to readers at each node, while others are published."""
    found = []
    with cluster(bench) as (_, nodes):
        # A broker of 2.9 holds messages up for 20 ms now and then in its first seconds.
        publish_steadily(nodes[0], SECONDS)
        for node in nodes:
            publishing = threading.Thread(target=publish_steadily, args=(nodes[0], SECONDS + 2))
            publishing.start()
            found.append(delivery_p99_ms(bench, nodes[0], node))
            publishing.join()
    what = f"delivery at every node of a cluster beside {RATE:,} messages/s, p99"
    return [table.absolute_row(what, f"{max(found):.2f} ms", max(found), table.at_most(10, " ms"),
                               f"where it is published {found[0]:.2f} ms")]


def start(bench: Bench) -> list[table.Row]:
    """A node with many topics, of which the stream keeps a part: from its own disk, and from that
    of another one."""
    with tempfile.TemporaryDirectory() as directory, \
            broker_of("keep_bytes = '16 MiB'\n") as (_, config):
        kept = f"{config}[store]\npath = '{directory}/data'\n"
        with ready(Stentor(bench, config=kept, cores="0,1")) as node:
            node.put_many(topics_many())
        begun = time.monotonic()
        with ready(Stentor(bench, config=kept, cores="0,1")) as node:
            by_itself_s = time.monotonic() - begun
            begun = time.monotonic()
            other = f"{config}peers = 'http://127.0.0.1:{node.control_port}'\n"
            with ready(Stentor(bench, config=other, cores="0,1", name="other")) as other_node:
                by_peer_s = time.monotonic() - begun
                last = f"/bench/topics/{TOPICS_MANY - 1:07d}"
                for server in (node, other_node):
                    with Client(server.control_port) as client:
                        client.read(last)
    what = f"start of a node with {TOPICS_MANY:,} topics"
    return [
        table.absolute_row(f"{what}, from its disk", f"{by_itself_s:.1f} s", by_itself_s,
                           table.at_most(4, " s")),
        table.absolute_row(f"{what}, from another node", f"{by_peer_s:.1f} s", by_peer_s,
                           table.at_most(6, " s")),
    ]
