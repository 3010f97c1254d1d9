"""What can be set for a WebSocket server."""

from typing import ClassVar, Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from diem.process.edge_settings import EdgeSettings
from diem.process.link_url import LinkUrl
from diem.traffic.settings import TrafficSettings


class Settings(EdgeSettings, TrafficSettings):
    """Settings of one WebSocket server, from ``DIEM_WEBSOCKET_*``, ``DIEM_TRAFFIC_*`` and ``DIEM_KAFKA_*``."""

    model_config = SettingsConfigDict(env_prefix="DIEM_WEBSOCKET_")
    process: ClassVar[str] = "websocket"

    number: int = Field(default=1, ge=1, description="Which of the servers this is; part of its name.")
    mode: Literal["single", "x-broadcast", "x", "all-to-all", "z-client", "z-proxy", "z-composite", "xz"] = Field(
        default="single",
        description="Scaling mode: all-to-all sends every update to every client; in z-* and xz, servers share out "
        "the endpoints.",
    )
    feed_url: LinkUrl = Field(default="ws://127.0.0.1:9080/feed", description="The feed that this server reads.")

    @property
    def partitioned(self) -> bool:
        """Whether this server has a part of the endpoints, and others the rest."""
        return self.mode.startswith("z-") or self.mode == "xz"

    @property
    def process_name(self) -> str:
        """The name in logs: which of the servers it is."""
        return f"websocket-{self.number}"
