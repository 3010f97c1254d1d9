"""Sources: what keeps endpoints up to date from elsewhere. One that fails never stops another.

Reading order: ``source`` (the seam), ``tables`` and ``config`` (diem.toml), ``plugins``, ``runner``; the types are
``http`` with ``fetch``, ``directory`` with ``parquet``, and ``market``. The names here are what a plug-in needs
(docs/sources.md).
"""

from services.data.sources.source import Claim, Fault, Health, Sink, Source
from services.data.sources.tables import Endpoint, SourceTable

__all__ = ["Claim", "Endpoint", "Fault", "Health", "Sink", "Source", "SourceTable"]
