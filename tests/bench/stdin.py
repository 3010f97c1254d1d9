"""Standard input as lines, without a thread."""

import asyncio
import sys
from collections.abc import AsyncIterator


async def lines() -> AsyncIterator[str]:
    """The lines of standard input, without their ends."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        yield line.decode().rstrip("\n")
