"""The Python client of ``diem.v1.json``: subscribe, iterate over events, reconnect with what is known.

Reading order: ``base``, ``line`` (one connection), ``updates`` (one server); for many ``partitioned``, with ``routes``,
``owners`` and ``locate``.
"""

from diem.links.client.base import BaseClient, Event, Kind, Timing
from diem.links.client.partitioned import PartitionedClient
from diem.links.client.updates import UpdatesClient

__all__ = ["BaseClient", "Event", "Kind", "PartitionedClient", "Timing", "UpdatesClient"]
