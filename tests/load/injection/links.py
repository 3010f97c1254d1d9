"""Faults of links through a relay: from a bridge to its server, and from clients or proxies to a server."""

import asyncio
from time import monotonic

from tests.load.injection.scene import Inject, Scene
from tests.load.relay import Relay
from tests.load.system import NotUp
from tests.oracle.history import Fault

FEED = "bridge-1 to websocket-1"
UPSTREAM = "links to websocket-1"
HOLE_SECONDS = 12.0
"""Longer than the 10 s without a heartbeat after which a server reports that it is not live."""
AGAIN_SECONDS = 15.0


def reset(kind: str, target: str) -> Inject:
    """Reset the link on both sides; over when it is re-established."""

    async def inject(scene: Scene) -> Fault:
        relay = await _relay(scene, target)
        before, start = relay.accepted, monotonic()
        relay.reset()
        while relay.accepted == before or not relay.connections:
            if monotonic() > start + AGAIN_SECONDS:
                raise NotUp(f"nobody dialled again: {target}")
            await asyncio.sleep(0.02)
        return Fault(kind, target, start, monotonic())

    return inject


def black_hole(kind: str, target: str) -> Inject:
    """Drop all data without closing the link."""

    async def inject(scene: Scene) -> Fault:
        relay = await _relay(scene, target)
        start = monotonic()
        relay.black_hole()
        await asyncio.sleep(HOLE_SECONDS)
        relay.heal()
        return Fault(kind, target, start, monotonic())

    return inject


async def _relay(scene: Scene, target: str) -> Relay:
    """Return the relay of a link, once a link is there: after a fault its server is no member for some seconds."""
    relay, limit = scene.relay if target == FEED else scene.upstream, monotonic() + AGAIN_SECONDS
    while not relay.connections:
        if monotonic() > limit:
            raise NotUp(f"nothing goes through the relay: {target}")
        await asyncio.sleep(0.02)
    return relay
