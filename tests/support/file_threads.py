"""Files converted in threads of the test's process, where the process of ``FileReader`` is not what is tested."""

import asyncio
from typing import Final

from services.data.files.convert import convert
from services.data.files.grid import InputFile
from services.data.files.mapping import Mapping
from services.data.files.suggest import suggest
from services.data.files.suggestion import Suggestion
from services.data.files.target import FileTarget
from services.data.kinds import Representation


class FileThreads:
    """Converts and suggests in threads."""

    async def convert(self, file: InputFile, mapping: Mapping, target: FileTarget) -> list[Representation]:
        """Convert a file."""
        return await asyncio.to_thread(convert, file, mapping, target)

    async def suggest(self, file: InputFile) -> Suggestion:
        """Suggest the source of a file."""
        return await asyncio.to_thread(suggest, file)


FILES: Final = FileThreads()
