"""Settings of a proxy."""

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from diem.process.address_rules import check_rules
from diem.process.edge_settings import EdgeSettings
from diem.process.numbers import FORMS, parse_number
from diem.process.settings import LinkUrl
from diem.traffic.settings import TrafficSettings


class Settings(EdgeSettings, TrafficSettings):
    """Settings of one proxy, from ``DIEM_PROXY_*``, ``DIEM_TRAFFIC_*`` and ``DIEM_KAFKA_*``."""

    process: ClassVar[str] = "proxy"

    number: int = Field(default=1, ge=1, description=f"Which of the proxies this is; part of its name: {FORMS}.")
    scaling: Literal["z-proxy", "z-composite", "xz"] = Field(
        default="z-proxy", description="Scaling mode reported to clients."
    )
    port: int = Field(default=8501, ge=0, le=65535, description="Port of the public listener; 0 = a free one.")
    internal_port: int = Field(default=9501, ge=0, le=65535, description="Port of the internal listener; 0 = any free.")
    metadata_urls: list[LinkUrl] = Field(
        default=["ws://127.0.0.1:9400/watch"],
        min_length=1,
        description="Watch URLs of metadata services; one of them is used at a time.",
    )
    clone: int = Field(default=1, ge=1, description="Number of the clone whose servers are used.")
    allowed: list[str] = Field(
        default=["127.0.0.0/8"],
        description="Servers that may be dialled: networks (CIDR) or names of hosts, alone or with :port or :low-high; "
        "all others are ignored. Names are resolved.",
    )

    @property
    def process_name(self) -> str:
        """Name of this proxy in logs, with its number."""
        return f"proxy-{self.number}"

    @field_validator("number", mode="before")
    @classmethod
    def _of_the_pod(cls, value: object) -> object:
        return parse_number(value)

    @field_validator("allowed")
    @classmethod
    def _rules(cls, allowed: list[str]) -> list[str]:
        return check_rules(allowed)
