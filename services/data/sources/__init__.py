"""Sources: what keeps endpoints up to date from elsewhere. One that fails never stops another.

Reading order: ``source`` (the seam), ``tables`` and ``config`` (diem.toml), ``plugins``, ``runner``; the types are
``http`` with ``fetch``, ``directory`` with ``parquet``, and ``market``. The names here are what a plug-in needs
(docs/sources.md). A new type needs its table in ``tables``, its name in ``config.TABLES``, its making in ``runner``.
"""

from services.data.sources.source import Claim, Fault, Health, Sink, Source
from services.data.sources.tables import Endpoint, SourceTable

__all__ = ["Claim", "Endpoint", "Fault", "Health", "Sink", "Source", "SourceTable"]
