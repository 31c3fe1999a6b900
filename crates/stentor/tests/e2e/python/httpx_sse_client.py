"""A reader of Server-Sent Events with the `httpx-sse` library, as its documentation shows it:
prints what it hands on, one line of JSON for each.

Usage: httpx_sse_client.py URL
"""

import json
import sys

import httpx
from httpx_sse import connect_sse

with httpx.Client(timeout=60, trust_env=False) as client:
    with connect_sse(client, "GET", sys.argv[1]) as source:
        for event in source.iter_sse():
            print(json.dumps({"id": event.id, "name": event.event, "data": event.data}))
