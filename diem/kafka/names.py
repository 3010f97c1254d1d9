"""The names of topics and consumer groups (docs/protocol.md section 3): one prefix for all that belongs together."""

from typing import NamedTuple


class Names(NamedTuple):
    """The names under one prefix, which keeps several systems in one cluster apart."""

    prefix: str

    @property
    def updates(self) -> str:
        """The compacted topic of endpoint updates."""
        return f"{self.prefix}updates"

    def x_group(self, number: int) -> str:
        """The group of the bridge ``number`` on the X axis: its own, so that it reads everything."""
        return f"{self.prefix}x-{number:03}"
