"""Connections to PostgreSQL on other machines."""

import pytest
from sqlalchemy.engine import make_url
from structlog.testing import capture_logs

from services.data.store.postgres import PostgresDatabase


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("postgresql://u:p@db.example/diem", True),
        ("postgresql://u:p@192.0.2.1/diem?sslmode=prefer", True),
        ("postgresql://u:p@db.example/diem?sslmode=require", False),
        ("postgresql://u:p@db.example/diem?sslmode=verify-full", False),
        ("postgresql://u:p@localhost/diem", False),
        ("postgresql://u:p@127.0.0.1:5432/diem", False),
        ("postgresql:///diem?host=/run/postgresql", False),
    ],
)
async def test_database_of_another_machine_without_tls_is_warned_of(url: str, warned: bool) -> None:
    with capture_logs() as logs:
        database = PostgresDatabase(make_url(url), 1.0)
    await database.close()
    assert bool(logs) == warned
    assert "u:p" not in str(logs)
