"""Faults of the link between a bridge and its server, which goes through a relay."""

import asyncio
from time import monotonic

from tests.load.injection.scene import Scene
from tests.load.system import NotUp
from tests.oracle.history import Fault

TARGET = "bridge-1 to websocket-1"
HOLE_SECONDS = 12.0
"""Longer than the 10 s without a beat after which a server says that it is not live."""
AGAIN_SECONDS = 15.0


async def reset(scene: Scene) -> Fault:
    """The link reset on both sides; over when there is one again."""
    relay, start = scene.relay, monotonic()
    before = relay.accepted
    if not relay.connections:
        raise NotUp("the feed does not go through the relay")
    relay.reset()
    while relay.accepted == before or not relay.connections:
        if monotonic() > start + AGAIN_SECONDS:
            raise NotUp("the server did not dial its bridge again")
        await asyncio.sleep(0.02)
    return Fault("cut-reset", TARGET, start, monotonic())


async def black_hole(scene: Scene) -> Fault:
    """Nothing passes, and nobody is told."""
    start = monotonic()
    if not scene.relay.connections:
        raise NotUp("the feed does not go through the relay")
    scene.relay.black_hole()
    await asyncio.sleep(HOLE_SECONDS)
    scene.relay.heal()
    return Fault("cut-black-hole", TARGET, start, monotonic())
