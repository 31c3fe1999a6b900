"""A reader of Server-Sent Events with `requests` and `sseclient-py`, which read a body in blocks
unless it is chunked: prints what they hand on, one line of JSON for each event.

Usage: requests_client.py URL
"""

import json
import sys

import requests
import sseclient

session = requests.Session()
session.trust_env = False
fields = {"Accept": "text/event-stream"}
with session.get(sys.argv[1], headers=fields, stream=True, timeout=60) as answer:
    for event in sseclient.SSEClient(answer).events():
        print(json.dumps({"id": event.id, "name": event.event, "data": event.data}))
