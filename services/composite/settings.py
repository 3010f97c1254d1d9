"""Settings of a composite."""

from typing import ClassVar, Final, Literal

from pydantic import Field, field_validator

from diem.kafka.config import KafkaSettings
from diem.process.edge_settings import ServerSettings
from diem.process.numbers import FORMS, parse_number
from diem.process.settings import variables
from services.composite.plan import MAX_PAIRS


class Settings(ServerSettings, KafkaSettings):
    """Settings of a composite, from ``DIEM_COMPOSITE_*`` and ``DIEM_KAFKA_*``; those of its children follow from them.

    Variables of the children (``DIEM_PROXY_*``, ``DIEM_WEBSOCKET_*``, ...) that the composite does not set itself are
    inherited by all children of that kind; those that it reads itself without the name of a process, by none.
    """

    process: ClassVar[str] = "composite"

    number: int = Field(
        default=1,
        ge=1,
        le=999,
        description=f"Which composite this is; each has a consumer group, with every endpoint: {FORMS}.",
    )
    pairs: int = Field(
        default=2, ge=1, le=MAX_PAIRS, description="Pairs of bridge and server at the start; they share the partitions."
    )
    max_pairs: int = Field(
        default=8, ge=1, le=MAX_PAIRS, description="Most pairs that it can be scaled to; at least those at the start."
    )
    mode: Literal["z-composite", "xz"] = Field(default="z-composite", description="Scaling mode reported to clients.")
    port: int = Field(default=8601, ge=0, le=65535, description="Port of the public listener; 0 = a free one.")
    internal_port: int = Field(default=9601, ge=0, le=65535, description="Port of the internal listener; 0 = any free.")

    @field_validator("number", mode="before")
    @classmethod
    def _of_the_pod(cls, value: object) -> object:
        return parse_number(value)

    @property
    def most_pairs(self) -> int:
        """Number of pairs with server ports reserved from the start."""
        return max(self.pairs, self.max_pairs)

    @property
    def process_name(self) -> str:
        """Name of this composite in logs, with its number: each has its own log and consumer group."""
        return f"composite-{self.number}"


OWN: Final = frozenset(names[-1] for name in Settings.model_fields if len(names := variables(Settings, name)) > 1)
"""The variables that a composite reads and its children must not."""
