"""`diem backup` beside a running system whose store is named in that system's environment alone."""

from pathlib import Path
from urllib.parse import urlsplit

from tests.integration.deploy.running import diem, up
from tests.support.postgres import Cluster
from tests.support.required import in_cluster

CSV = b"time,value\n2026-01-01T00:00:00Z,7\n"


@in_cluster("it starts three systems")
async def test_backup_uses_the_store_of_the_running_system(tmp_path: Path, postgres: Cluster) -> None:
    database = postgres.new_database()
    url = postgres.url(database)
    password = urlsplit(url).password
    assert password
    async with up(tmp_path, launcher=("env", f"DIEM_DATABASE_URL={url}")):
        code, _, err = await diem(
            "put", "/a", "-", "--type", "csv", "--unit", "MW", "--resolution", "PT1H", cwd=tmp_path, stdin=CSV
        )
        assert code == 0, err
        code, out, err = await diem("backup", "file", cwd=tmp_path)
        assert code == 0, err
        assert "file has 1 endpoints" in out
        state = tmp_path / ".diem"
        assert not [path for path in state.rglob("*") if path.is_file() and password.encode() in path.read_bytes()]
    # Nothing runs: the store of the directory is not taken for an empty one.
    code, _, err = await diem("restore", "file", cwd=tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert "was in PostgreSQL" in err
    assert "set DIEM_DATA_DATABASE_URL, or give --database-url" in err
    postgres.empty(database)
