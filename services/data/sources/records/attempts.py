"""Keeps a source of records reading: attempts with pauses that grow, their errors as the source's health."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from diem.process.backoff import Backoff
from services.data.errors import CheckpointMoved, DataError, TooManyEndpoints
from services.data.sources.records.applier import RecordRefused
from services.data.sources.source import Fault, Health, fault_of

RETRY_BASE_S: Final = 0.5
RETRY_CAP_S: Final = 30.0
STABLE_S: Final = 30.0
"""An attempt that lasted as long is followed by a short pause."""
GO_ON: Final = "correct the record or what diem.toml says of it, or skip it by `diem sources replay {} --skip`"


class InputFailed(DataError):
    """The origin cannot be reached, or does not let this source read."""

    code = "input_failed"


async def keep_trying(
    health: Health, attempt: Callable[[], Awaitable[None]], *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Read again and again until cancelled: from the stored position, after every error.

    Args:
        health: of the source.
        attempt: connects, and reads until an error: a DataError such as :class:`InputFailed`. It calls
            ``health.succeeded()`` once it reads, and whenever it is up to date.
        sleep: waits for some seconds.
    """
    backoff, time = (
        Backoff(RETRY_BASE_S, RETRY_CAP_S, stable_s=STABLE_S, immediate=True),
        asyncio.get_running_loop().time,
    )
    while True:
        began = time()
        try:
            await attempt()
        except CheckpointMoved:
            pass  # the answer of a commit was lost: the stored position is a later one
        except RecordRefused as error:
            if health.intake is not None:
                health.intake.stopped = error.part, error.position
            health.failed(f"{error}: {GO_ON.format(health.name)}", fault=Fault.INVALID)
        except TooManyEndpoints as error:
            health.failed(str(error), fault=Fault.STORE)
        except InputFailed as error:
            health.failed(str(error), fault=Fault.UNREACHABLE)
        except DataError as error:
            health.failed(str(error), fault=fault_of(error))
        wait_s = backoff.next_delay(time() - began)
        health.scheduled(wait_s)
        await sleep(wait_s)
