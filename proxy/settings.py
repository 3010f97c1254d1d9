"""Settings of a proxy."""

from typing import ClassVar, Literal

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from diem.process.edge_settings import EdgeSettings
from diem.process.link_url import LinkUrl
from diem.traffic.settings import TrafficSettings
from proxy.allowed import parse_rule


class Settings(EdgeSettings, TrafficSettings):
    """Settings of one proxy, from ``DIEM_PROXY_*``, ``DIEM_TRAFFIC_*`` and ``DIEM_KAFKA_*``."""

    model_config = SettingsConfigDict(env_prefix="DIEM_PROXY_")
    process: ClassVar[str] = "proxy"

    number: int = Field(default=1, ge=1, description="Which of the proxies this is; part of its name.")
    mode: Literal["shared", "passthrough"] = Field(
        default="shared", description="shared: one link to each server for all clients; passthrough: one for each, too."
    )
    scaling: Literal["z-proxy", "z-composite", "xz"] = Field(
        default="z-proxy", description="Scaling mode that clients are told of."
    )
    port: int = Field(default=8501, ge=0, le=65535, description="Port of the public listener; 0 = a free one.")
    internal_port: int = Field(default=9501, ge=0, le=65535, description="Port of the internal listener; 0 = any free.")
    metadata_urls: list[LinkUrl] = Field(
        default=["ws://127.0.0.1:9400/watch"],
        min_length=1,
        description="Watches of metadata services; one is followed.",
    )
    clone: int = Field(default=1, ge=1, description="The group whose servers are asked.")
    allowed: list[str] = Field(
        default=["127.0.0.0/8"],
        description="Servers that may be dialled: CIDR, CIDR:port or CIDR:low-high; all others are ignored.",
    )
    upstreams: int = Field(default=20_000, ge=1, description="Links to servers for clients in mode passthrough.")

    @property
    def process_name(self) -> str:
        """The name in logs: which of the proxies it is."""
        return f"proxy-{self.number}"

    @field_validator("allowed")
    @classmethod
    def _rules(cls, allowed: list[str]) -> list[str]:
        for rule in allowed:
            parse_rule(rule)
        return allowed
