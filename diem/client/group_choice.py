"""The choice of a group of servers by the metadata service (docs/protocol.md section 3)."""

import contextlib
import random
import ssl
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import orjson

from diem.client.http import Unreachable, request
from diem.client.routes import trusted_url

ANSWER_TIMEOUT_S: Final = 2.0
"""Time for each service to answer."""


async def least_loaded_group(
    services: Sequence[str], hosts: frozenset[str], headers: Mapping[str, str], tls: ssl.SSLContext | None
) -> frozenset[str]:
    """Return the URLs of the servers of the group with the fewest clients; empty if no service answers.

    Args:
        services: base URLs of the metadata services, one of which is asked, and others if it does not answer.
        hosts: allowed hosts of servers, besides those of ``services``.
        headers: of the request: origin and token.
        tls: context for ``https`` URLs; None: the system's authorities decide.
    """
    trusted = hosts | {urlsplit(service).hostname or "" for service in services}
    fields = {**headers, "Content-Type": "application/json"}
    for service in random.sample(services, len(services)):
        # Anything else than the protocol's answer is none.
        with contextlib.suppress(Unreachable, ValueError, KeyError, TypeError):
            url = f"{service}/locate"
            reply = await request(
                "POST", url, headers=fields, body=b'{"endpoints":[]}', tls=tls, timeout_s=ANSWER_TIMEOUT_S
            )
            named = orjson.loads(reply.body)["servers"]
            if urls := frozenset(filter(None, (trusted_url(each, service, trusted) for each in named))):
                return urls
    return frozenset()
