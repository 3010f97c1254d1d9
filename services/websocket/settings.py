"""What can be set for a WebSocket server."""

from ipaddress import IPv4Network, IPv6Network
from typing import ClassVar, Literal

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from diem.process.listeners import canonical_origin
from diem.process.settings import ProcessSettings


class Settings(ProcessSettings):
    """Settings of one WebSocket server, from ``DIEM_WEBSOCKET_*``."""

    model_config = SettingsConfigDict(env_prefix="DIEM_WEBSOCKET_")
    process: ClassVar[str] = "websocket"

    number: int = Field(default=1, ge=1, description="Which of the cloned servers this is; part of its name.")
    mode: Literal["single", "x-broadcast", "x", "all-to-all"] = Field(
        default="single", description="Scaling mode; all-to-all sends every update to every client."
    )
    host: str = Field(default="127.0.0.1", description="Address of the public listener.")
    port: int = Field(default=8101, ge=0, le=65535, description="Port of the public listener; 0 = a free one.")
    internal_host: str = Field(default="127.0.0.1", description="Address of the internal listener.")
    internal_port: int = Field(default=9101, ge=0, le=65535, description="Port of the internal listener; 0 = any free.")
    feed_url: str = Field(default="ws://127.0.0.1:9080/feed", description="The feed that this server reads.")
    origins: list[str] = Field(
        default=[], description="Origins whose pages may connect, exact; the page's own is allowed on loopback."
    )
    page_port: int | None = Field(default=8080, description="Port of the page, for the origin rule on loopback.")
    trusted_proxies: list[IPv4Network | IPv6Network] = Field(
        default=[], description="Networks of proxies whose X-Forwarded-For is believed."
    )
    subscriptions: int = Field(default=128, ge=1, le=1000, description="Subscriptions that one client may hold.")
    connections_per_address: int = Field(default=50, ge=1, description="Clients of one address (IPv6: of one /64).")
    capacity: int = Field(default=10_000, ge=1, description="Clients of this server.")
    connection_rate: float = Field(default=200.0, gt=0, description="New clients a second in the long run.")

    @property
    def process_name(self) -> str:
        """The name in logs: which of the servers it is."""
        return f"websocket-{self.number}"

    @field_validator("origins")
    @classmethod
    def _canonical(cls, origins: list[str]) -> list[str]:
        return [canonical_origin(origin) for origin in origins]
