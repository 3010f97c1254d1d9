"""Errors of backups.

DataError
├── BadBackup          a stream that cannot be restored
├── NotEmpty           a restore would replace data or API keys
└── UnconfirmedKeys    a restore would make API keys valid
"""

from dataclasses import dataclass

from services.data.access.keys import Key
from services.data.errors import DataError


@dataclass(eq=False)
class BadBackup(DataError):
    """A stream other than a complete backup."""

    template = "{name} cannot be restored: {reason}; nothing was changed"
    code = "bad_backup"

    name: str
    reason: str


class NotEmpty(DataError):
    """A restore would replace existing data or API keys."""

    code = "store_not_empty"


@dataclass(eq=False)
class UnconfirmedKeys(DataError):
    """A restore would make API keys valid that the replaced store lacked, or had with another secret."""

    code = "unconfirmed_keys"

    keys: tuple[Key, ...]

    def __str__(self) -> str:
        many = len(self.keys) > 1
        return (
            f"{len(self.keys)} API key{'s' if many else ''} of the backup would become valid; nothing was changed: "
            f"add --yes to accept {'them' if many else 'it'}"
        )
