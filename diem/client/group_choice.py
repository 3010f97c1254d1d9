"""The choice of a group of servers by the metadata service (docs/protocol.md section 4)."""

import asyncio
import contextlib
import random
import ssl
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import httpx

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
    async with httpx.AsyncClient(timeout=ANSWER_TIMEOUT_S, trust_env=False, verify=tls or True) as http:
        for service in random.sample(services, len(services)):
            # Anything else than the protocol's answer is none.
            with contextlib.suppress(TimeoutError, httpx.HTTPError, ValueError, KeyError, TypeError):
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    reply = await http.post(f"{service}/locate", json={"endpoints": []}, headers=headers)
                if urls := frozenset(
                    filter(None, (trusted_url(url, service, trusted) for url in reply.json()["servers"]))
                ):
                    return urls
    return frozenset()
