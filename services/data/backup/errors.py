"""Errors of backups.

DataError
├── BadBackup          a file that cannot be restored
├── NotEmpty           a restore would replace data or API keys
└── UnconfirmedKeys    a restore would make API keys valid
"""

from dataclasses import dataclass
from pathlib import Path

from services.data.access.keys import Key
from services.data.errors import DataError


@dataclass(eq=False)
class BadBackup(DataError):
    """A file that is no complete and authentic backup, or has content that a store would not accept."""

    template = "{path} cannot be restored: {reason}"
    code = "bad_backup"

    path: Path
    reason: str


class NotEmpty(DataError):
    """A restore would replace existing data or API keys."""

    code = "store_not_empty"


@dataclass(eq=False)
class UnconfirmedKeys(DataError):
    """A restore would make API keys valid that the replaced store did not have, or not with that secret."""

    code = "unconfirmed_keys"

    keys: tuple[Key, ...]

    def __str__(self) -> str:
        many = len(self.keys) > 1
        return (
            f"{len(self.keys)} API key{'s' if many else ''} of the backup would become valid; nothing was changed: "
            f"add --yes to accept {'them' if many else 'it'}"
        )
