"""Sources: keep endpoints up to date with external data. A failing source never stops another.

Reading order: ``source`` (the seam), ``tables``, ``config`` and ``faults`` (diem.toml), ``plugins``, ``runner``,
``trial`` (runs each source once); the types are ``http``, or ``watched`` with ``poll_queue`` for a URL with ``{rest}``,
``directory``, and of ``records``: ``kafka``, ``mqtt``, ``postgres``, ``webhook``. Below the first two are
``http_reader``, ``windows`` (days), ``parts`` (of series), ``retrieval``, ``request`` with ``templates`` (dates),
``paging``, ``pacing`` and ``fetch``. Plug-ins use the names exported here (docs/sources.md). A new type needs a table,
a name in ``config.TABLES`` and a case in ``runner``.
"""

from services.data.sources.source import Claim, Fault, Health, Sink, Source
from services.data.sources.tables import Endpoint, SourceTable

__all__ = ["Claim", "Endpoint", "Fault", "Health", "Sink", "Source", "SourceTable"]
