"""aiokafka's admin client as a context that ends in any state of the cluster, with one kind of error."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from diem.kafka.errors import KafkaUnavailable
from diem.kafka.options import KafkaOptions

REQUEST_TIMEOUT_MS: Final = 10_000
WITHIN_S: Final = 20.0


@asynccontextmanager
async def administering(options: KafkaOptions, within: float | None = WITHIN_S) -> AsyncIterator[AIOKafkaAdminClient]:
    """A connected admin client; the block has ``within`` seconds, or with None as long as it takes.

    Raises:
        KafkaUnavailable: the cluster does not answer, or refuses; also for what fails so in the block.
        ConfigurationError: see :meth:`KafkaOptions.client_arguments`.
    """
    admin = AIOKafkaAdminClient(request_timeout_ms=REQUEST_TIMEOUT_MS, **options.client_arguments())
    try:
        async with asyncio.timeout(within):
            await admin.start()
            yield admin
    except (KafkaError, OSError, TimeoutError) as error:
        reason = "no answer in time" if isinstance(error, TimeoutError) else f"{type(error).__name__} {error}".strip()
        raise KafkaUnavailable(options.bootstrap_servers, reason) from error
    finally:
        with suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(2):
                await admin.close()
