"""Settings of a WebSocket server."""

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from diem.process.edge_settings import ServerSettings
from diem.process.numbers import FORMS, parse_number
from diem.process.settings import LinkUrl
from diem.traffic.settings import TrafficSettings


class Settings(ServerSettings, TrafficSettings):
    """Settings of one WebSocket server, from ``DIEM_WEBSOCKET_*``, ``DIEM_TRAFFIC_*`` and ``DIEM_KAFKA_*``."""

    process: ClassVar[str] = "websocket"

    number: int = Field(default=1, ge=1, description=f"Which of the servers this is; part of its name: {FORMS}.")
    mode: Literal["single", "x-broadcast", "x", "all-to-all", "z-client", "z-proxy", "z-composite", "xz"] = Field(
        default="single",
        description="Scaling mode: all-to-all sends every update to every client; in z-* and xz, servers share out "
        "the endpoints.",
    )
    feed_url: list[LinkUrl] = Field(
        default=["ws://127.0.0.1:9080/feed"],
        min_length=1,
        description="The feed that this server reads; of several, as those of a Data Service and its stand-by, the one "
        "that answers.",
    )

    @field_validator("number", mode="before")
    @classmethod
    def _of_the_pod(cls, value: object) -> object:
        return parse_number(value)

    @property
    def partitioned(self) -> bool:
        """True if a group of servers divides the endpoints."""
        return self.mode.startswith("z-") or self.mode == "xz"

    @property
    def process_name(self) -> str:
        """Name of this server in logs, with its number."""
        return f"websocket-{self.number}"
