"""The key document as a file, for edges on this machine.

They could get it by HTTP, but while the Data Service is down any local user may listen on its port and publish a forged
key. A file in the state directory belongs to its owner.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from diem.process.private_files import replace_private
from services.data.access.tokens import KeyDocument

CHECK_EVERY_S: Final = 1.0
"""Seconds between two checks for changes: the time for a revocation to reach the file."""
_logger = structlog.get_logger("access")


class KeyDocumentFile:
    """Writes the key document whenever it has changed.

    Args:
        path: replaced atomically, so that readers see the old or the new content.
        document: returns the current one.
    """

    def __init__(self, path: Path, document: Callable[[], KeyDocument]) -> None:
        self._path = path
        self._document = document
        self._written: str | None = None
        """ETag of the content."""
        self._failed = False

    def write(self) -> None:
        """Write the document if it has changed; a failure is logged once, and the next call tries again."""
        document = self._document()
        if document.etag == self._written:
            return
        try:
            replace_private(self._path, document.body)
        except OSError as error:
            if not self._failed:
                _logger.warning("keys of client tokens not written", file=str(self._path), error=error.strerror)
            self._failed = True
            return
        self._written, self._failed = document.etag, False

    async def run(self) -> None:
        """Follow the document until cancelled."""
        while True:
            self.write()
            await asyncio.sleep(CHECK_EVERY_S)
