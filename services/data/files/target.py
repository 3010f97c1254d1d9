"""The endpoints of a file, and the interface of its conversion."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from services.data.files.grid import InputFile
from services.data.files.mapping import Mapping
from services.data.kinds import Representation
from services.data.kinds.series import Declared


@dataclass(frozen=True, slots=True)
class FileTarget:
    """The endpoints of a file, and what is declared of them.

    Attributes:
        declared: of the only endpoint, or of those below ``prefix``. name: template of names if the mapping has none.
    """

    declared: Declared
    prefix: str = ""
    name: str = ""


Converter = Callable[[InputFile, Mapping, FileTarget], Awaitable[list[Representation]]]
"""What :func:`services.data.files.convert.convert` does, beside the event loop."""
