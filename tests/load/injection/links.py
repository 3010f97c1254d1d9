"""Faults of links that go through a relay: from a bridge to its server, and from whoever needs a server to it."""

import asyncio
from time import monotonic

from tests.load.injection.scene import Inject, Scene
from tests.load.relay import Relay
from tests.load.system import NotUp
from tests.oracle.history import Fault

FEED = "bridge-1 to websocket-1"
UPSTREAM = "links to websocket-1"
HOLE_SECONDS = 12.0
"""Longer than the 10 s without a beat after which a server says that it is not live."""
AGAIN_SECONDS = 15.0


def reset(kind: str, target: str) -> Inject:
    """The link reset on both sides; over when there is one again."""

    async def inject(scene: Scene) -> Fault:
        relay, start = _relay(scene, target), monotonic()
        before = relay.accepted
        relay.reset()
        while relay.accepted == before or not relay.connections:
            if monotonic() > start + AGAIN_SECONDS:
                raise NotUp(f"nobody dialled again: {target}")
            await asyncio.sleep(0.02)
        return Fault(kind, target, start, monotonic())

    return inject


def black_hole(kind: str, target: str) -> Inject:
    """Nothing passes, and nobody is told."""

    async def inject(scene: Scene) -> Fault:
        relay, start = _relay(scene, target), monotonic()
        relay.black_hole()
        await asyncio.sleep(HOLE_SECONDS)
        relay.heal()
        return Fault(kind, target, start, monotonic())

    return inject


def _relay(scene: Scene, target: str) -> Relay:
    relay = scene.relay if target == FEED else scene.upstream
    if not relay.connections:
        raise NotUp(f"nothing goes through the relay: {target}")
    return relay
