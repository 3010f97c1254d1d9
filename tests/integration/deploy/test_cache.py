"""The cache of nginx as `diem up` has it where everybody may read."""

import asyncio
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from diem.links.internal_client import internal_client
from diem.process.auth import SharedKey
from tests.integration.deploy.clients import NAME, put
from tests.integration.deploy.running import Running, up
from tests.support.nginx import needs_nginx
from tests.support.patience import PATIENCE_S

pytestmark = needs_nginx

READS = 'diem_http_requests_total{method="GET"'
READERS = 40


async def reads(running: Running) -> int:
    """Return the reads that the Data Service has answered."""
    (url,) = [each["urls"]["internal"] for each in running.described()["processes"] if each["name"] == "data"]
    async with internal_client(SharedKey.load(running.cwd / ".diem" / "internal.key"), PATIENCE_S) as http:
        lines = (await http.get(f"{url}/metrics")).text.splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith(READS))


async def test_a_herd_on_one_version_is_one_read_of_the_data_service_and_no_cache_is_left(tmp_path: Path) -> None:
    everybody = ("--set", "data:DIEM_DATA_ANONYMOUS_READS=on")
    async with up(tmp_path, "--mode", "x-broadcast", "--nginx", "--servers", "1", *everybody) as running:
        cache = Path((tmp_path / ".diem" / "nginx" / "cache-path").read_text())
        page = urlsplit(running.described()["urls"]["page"])
        async with httpx.AsyncClient(base_url=f"http://{page.netloc}", timeout=PATIENCE_S) as http:
            for value in (1, 2):
                version, before = await put(running, value), await reads(running)
                path = f"/v1/data{NAME}?version={version}"
                answers = await asyncio.gather(*(http.get(path) for _ in range(READERS)))
                assert Counter(answer.status_code for answer in answers) == {200: READERS}
                assert {answer.json()["version"] for answer in answers} == {version}
                assert {answer.json()["points"][0]["value"] for answer in answers} == {value}
                assert await reads(running) - before == 1
        assert [each for each in cache.rglob("*") if each.is_file()]
    assert not cache.exists()
