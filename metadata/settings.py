"""Settings of the metadata service."""

from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator

from diem.kafka.config import KafkaSettings
from diem.process.address_rules import check_rules
from diem.process.edge_settings import PublicSettings
from diem.process.numbers import FORMS, parse_number


class Settings(PublicSettings, KafkaSettings):
    """Settings of the metadata service, from ``DIEM_METADATA_*``."""

    process: ClassVar[str] = "metadata"

    number: int | None = Field(
        default=None, ge=1, description=f"Which of several metadata services this is; part of its name: {FORMS}."
    )
    port: int = Field(default=8400, ge=0, le=65535, description="Port of the public listener; 0 = a free one.")
    internal_port: int = Field(default=9400, ge=0, le=65535, description="Port of the internal listener; 0 = any free.")
    clones: int | list[int] = Field(
        default=1, description="Clones of the group of servers: how many (from 1), or a list of their numbers."
    )
    allowed: list[str] = Field(
        default=["127.0.0.0/8"],
        description="Servers that are polled for their load: networks (CIDR) or names of hosts, alone or with :port or "
        ":low-high. Names are resolved.",
    )
    subscriptions: int = Field(default=1000, ge=1, le=1000, description="Names in one request.")
    connections: int = Field(default=1000, ge=1, description="Open connections with requests; beyond, 503.")
    rate: float = Field(default=20.0, gt=0, description="Requests a second and address in the long run.")
    burst: float = Field(default=100.0, ge=1, description="Requests of one address at once.")
    rate_loopback: float = Field(default=2000.0, gt=0, description="The same for addresses of this machine.")
    burst_loopback: float = Field(default=8000.0, ge=1, description="The same for addresses of this machine.")

    plans_dir: Path = Field(
        default_factory=lambda earlier: earlier["state_dir"] / "plans",
        description="Directory of the plans that were submitted; instances on one machine may share it.",
        json_schema_extra={"shown_default": "<state dir>/plans"},
    )
    move_seconds: float = Field(
        default=30.0, gt=0, description="Seconds in which clients may move with their endpoints before they must."
    )

    @property
    def clone_numbers(self) -> list[int]:
        """The numbers of all clones."""
        return list(range(1, self.clones + 1)) if isinstance(self.clones, int) else sorted(set(self.clones))

    @field_validator("number", mode="before")
    @classmethod
    def _of_the_pod(cls, value: object) -> object:
        return parse_number(value)

    @property
    def process_name(self) -> str:
        """Name of this metadata service in logs, with its number if it has one."""
        return self.process if self.number is None else f"{self.process}-{self.number}"

    @field_validator("allowed")
    @classmethod
    def _rules(cls, allowed: list[str]) -> list[str]:
        return check_rules(allowed)

    @field_validator("clones")
    @classmethod
    def _are_numbers(cls, clones: int | list[int]) -> int | list[int]:
        numbers = [clones] if isinstance(clones, int) else clones
        if not numbers or min(numbers) < 1 or max(numbers) > 1000:
            raise ValueError("there is at least one clone, and their numbers are 1 to 1000")
        return clones
