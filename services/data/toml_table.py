"""Base of the tables of ``diem.toml``."""

from pydantic import BaseModel, ConfigDict


class Table(BaseModel):
    """A table without unknown fields and type conversion."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
