"""Stores as earlier releases left them: the tables of a revision, filled by SQL."""

from collections.abc import Mapping

import orjson
from sqlalchemy import Connection, text

from services.data.kinds.representation import digest_of
from services.data.store.tables import upgrade

RELEASED = "0006"
"""The revision of release 0.1.0."""
VERSION = 1_767_225_600_000


def make_earlier(connection: Connection, revision: str, endpoints: Mapping[str, tuple[str, str]]) -> None:
    """Make a store whose endpoints, with unit and area, have had one value, and another one before.

    The sequence is 1 for the first endpoint's first value, and so on.
    """
    upgrade(connection, revision)
    changed = {"kind": 0, "changed_ms": VERSION}
    sequence = 0
    for value in (1, 2):
        for name, (unit, area) in endpoints.items():
            sequence += 1
            points = [{"time": "2026-01-01T00:00:00Z", "value": value}]
            content = orjson.dumps({"unit": unit, "resolution": "PT1H", "points": points})
            row = {"name": name, "seq": sequence, "version": VERSION + value, "content": content, **changed}
            if value == 1:
                connection.execute(
                    text(
                        "INSERT INTO history (sequence, endpoint, version, kind, changed_ms, content)"
                        " VALUES (:seq, :name, :version, :kind, :changed_ms, :content)"
                    ),
                    row,
                )
                continue
            described = {"unit": unit, "area": area, "digest": digest_of(content)}
            connection.execute(
                text(
                    "INSERT INTO endpoints (endpoint, sequence, version, kind, changed_ms, unit, resolution, title,"
                    " source, area, quantity, digest, content) VALUES (:name, :seq, :version, :kind, :changed_ms,"
                    " :unit, 'PT1H', 'A title', '', :area, '', :digest, :content)"
                ),
                row | described,
            )
    connection.execute(
        text("INSERT INTO store (id, store_id, sequence) VALUES (1, 'earlier', :sequence)"), {"sequence": sequence}
    )
