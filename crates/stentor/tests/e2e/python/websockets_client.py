"""A reader with the `websockets` library: prints what it is told, one line of JSON for each.

Usage: websockets_client.py URL COMPRESSION PROTOCOL [TEXT...]: COMPRESSION is "deflate" or "none",
PROTOCOL may be empty, and each TEXT is sent at the beginning. It ends with its connection, which it
closes itself after the message "bye".
"""

import asyncio
import json
import sys

import websockets


def say(**what):
    print(json.dumps(what))


async def main(url, compression, protocol, *texts):
    options = {
        "compression": None if compression == "none" else compression,
        "subprotocols": [protocol] if protocol else None,
        "ping_interval": None,
        "max_size": None,
    }
    async with websockets.connect(url, **options) as connection:
        extensions = [extension.name for extension in connection.extensions]
        say(extensions=extensions, protocol=connection.subprotocol)
        # A pong with the same bytes, or this never ends.
        await (await connection.ping(b"x" * 125))
        say(pong=True)
        for text in texts:
            await connection.send(text)
        try:
            while True:
                message = await connection.recv()
                if message == "bye":
                    break
                if isinstance(message, bytes):
                    say(bytes=message.hex())
                else:
                    say(text=message)
        except websockets.ConnectionClosed:
            pass
    say(closed=connection.close_code, reason=connection.close_reason)


asyncio.run(main(*sys.argv[1:]))
