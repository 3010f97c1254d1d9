"""The negative control: a Data Service whose sources store their positions apart from their data, once a second.

It begins the command line of the service: ``python -m experiments.intake.apart python -m deploy run data``.
"""

import asyncio
import runpy
import sys
from collections.abc import Sequence
from typing import Final

from services.data.sources import runner
from services.data.store import Accepted, Change, Checkpoint, Write
from services.data.store.store import Store

COMMIT_EVERY_S: Final = 1.0
"""As consumers with automatic commits have it; their default is 5 s."""


class ApartSink(runner._StoreSink):
    """Stores changes at once, and positions later."""

    def __init__(self, source: str, store: Store, of: runner.SourceRunner) -> None:
        super().__init__(source, store, of)
        self._reached: dict[str, str] = {}
        self._committing = asyncio.create_task(self._commit())

    async def enqueue(self, changes: Sequence[Change], checkpoint: Checkpoint) -> "asyncio.Future[list[Accepted]]":
        if not changes and checkpoint.part not in self._reached:
            return await super().enqueue(changes, checkpoint)
        self._reached[checkpoint.part] = checkpoint.after
        return await self._store.writer.queue(Write(changes, self._source))

    async def _commit(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_EVERY_S)
            stored = await self.positions()
            for part, after in self._reached.items():
                write = Write([], self._source, checkpoint=Checkpoint(part, stored.get(part), after))
                await self._store.writer.submit(write)


if __name__ == "__main__":
    runner._StoreSink = ApartSink  # type: ignore[misc]
    *_, module = sys.argv[1:4]
    sys.argv = [module, *sys.argv[4:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
