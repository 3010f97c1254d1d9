"""A real Prometheus with what `diem metrics` prints: targets, rules, and the expressions of the dashboard."""

import asyncio
import json
import subprocess
from asyncio.subprocess import DEVNULL, STDOUT
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.integration.deploy.clients import clients, put, scale
from tests.integration.deploy.prometheus import program
from tests.integration.deploy.running import Running, diem, fine, up
from tests.integration.deploy.scraping import check_key_opens_nothing_else
from tests.support.nginx import needs_nginx
from tests.support.patience import PATIENCE_S, until
from tests.support.ports import free_port
from tests.support.required import in_cluster
from tools.prometheus.configuration import ALERTS, DASHBOARD

CASES = Path(__file__).parent / "alert_cases.yaml"


def promtool(*arguments: str) -> str:
    """Run promtool, which must succeed; return its output."""
    ran = subprocess.run(
        [program("promtool"), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def test_alert_rules_fire_when_they_should() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(ALERTS))
    assert "SUCCESS" in promtool("test", "rules", str(CASES))


class Prometheus:
    """Its HTTP API."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def get(self, path: str, **parameters: str) -> Any:
        answer = (await self._http.get(f"/api/v1/{path}", params=parameters)).raise_for_status().json()
        assert answer["status"] == "success"
        return answer["data"]

    async def targets(self) -> dict[str, str]:
        """Return the health of each target by its name in `diem status`."""
        active = [(each["labels"], each["health"]) for each in (await self.get("targets"))["activeTargets"]]
        return {"-".join(filter(None, (of["process"], of.get("number")))): health for of, health in active}

    async def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.get("query", query=expression))["result"]
        return found

    async def until_targets(self, *names: str) -> None:
        """Wait until it scrapes these processes, and no others."""
        async with asyncio.timeout(PATIENCE_S):
            while (found := await self.targets()) != dict.fromkeys(names, "up"):
                await asyncio.sleep(0.2)
        assert found

    async def until_found(self, expression: str, found: Callable[[list[dict[str, Any]]], bool] = bool) -> None:
        """Wait until an expression has a result."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not found(await self.query(expression)):
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(f"no result: {expression}") from None


@asynccontextmanager
async def prometheus(configuration: Path, directory: Path) -> AsyncIterator[Prometheus]:
    """Run Prometheus with a configuration until the block ends."""
    address = f"127.0.0.1:{free_port()}"
    log = (directory / "prometheus.log").open("wb")
    process = await asyncio.create_subprocess_exec(
        *(str(program("prometheus")), f"--config.file={configuration}", f"--web.listen-address={address}"),
        f"--storage.tsdb.path={directory / 'series'}",
        stdin=DEVNULL,
        stdout=log,
        stderr=STDOUT,
    )
    log.close()
    try:
        async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False, timeout=PATIENCE_S) as http:
            await _until_ready(http, process, directory / "prometheus.log")
            yield Prometheus(http)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            raise


async def _until_ready(http: httpx.AsyncClient, process: asyncio.subprocess.Process, log: Path) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            assert process.returncode is None, log.read_text()
            try:
                if (await http.get("/-/ready")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)


async def printed(running: Running, *options: str) -> Path:
    """Return a file with the configuration that `diem metrics` prints for what runs."""
    code, out, err = await diem("metrics", "--prometheus", *options, cwd=running.cwd)
    assert (code, err) == (0, "")
    file = running.cwd / f"prometheus{'-'.join(options)}.yml"
    file.write_text(out.replace(": 15s", ": 1s"))
    return file


def expressions() -> dict[str, str]:
    """Return the expressions of the dashboard with its variables replaced, by title and letter."""
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        .replace("$job", "diem.*")
        .replace("$__rate_interval", "1m")
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel.get("targets", ())
    }


EMPTY = {
    # Only with Kafka, proxies or sources; or only what went wrong.
    *("Updates per second C", "Staleness B", "Stale endpoints A", "Lag A", "Lag B"),
    *("Plan in progress: endpoints on the move A", "Partition map: epoch A"),
    *(f"Groups and partitions {query}" for query in "ABCDE"),
    *("Failed polls of sources per second A", "Refused handshakes per second A", "Security events per second A"),
    *("Closes and errors per second A", "Closes and errors per second B"),
    # Only in an interval with an update.
    *("Delivery delay A",),
}
"""Expressions without a result in a quiet system of mode x-broadcast."""


@needs_nginx
@in_cluster()
async def test_prometheus_scrapes_what_runs_and_follows_its_number(tmp_path: Path) -> None:
    program("prometheus")
    async with up(tmp_path, "--mode", "x-broadcast", "--servers", "1") as running:
        targets = tmp_path / ".diem" / "targets.json"
        await until(targets.exists)
        static, following = await printed(running, "--static"), await printed(running)
        for file in (static, following):
            assert "SUCCESS" in promtool("check", "config", str(file))
        async with prometheus(following, tmp_path) as monitoring, clients(running, 1) as (client,):
            await monitoring.until_targets("data", "broadcast", "websocket-1")
            assert [rule for rule in await _rules(monitoring) if rule["health"] == "err"] == []

            await scale(running, 2)
            await monitoring.until_targets("data", "broadcast", "websocket-1", "websocket-2")
            await running.until_status(fine)
            await client.sees(await put(running, 1))
            await monitoring.until_found('max_over_time(diem_delivery_delay_seconds{process="websocket"}[5m])')
            await monitoring.until_found('sum(diem_clients{job="diem"}) == 1')
            # Rates need two scrapes of a process.
            await monitoring.until_found('count(rate(process_cpu_seconds_total{job="diem"}[1m])) == 4')
            for title, expression in expressions().items():
                if title in EMPTY:
                    await monitoring.query(expression)
                else:
                    await monitoring.until_found(expression)

            kinds = await check_key_opens_nothing_else(running)
            assert kinds == {"data", "broadcast", "websocket"}
            await monitoring.until_found('diem_security_events_total{kind="wrong_internal_key", process="data"} > 0')
            assert {rule["health"] for rule in await _rules(monitoring)} <= {"ok", "unknown"}

            await scale(running, 1)
            await monitoring.until_targets("data", "broadcast", "websocket-1")
    assert not targets.exists()


async def _rules(monitoring: Prometheus) -> list[dict[str, Any]]:
    return [rule for group in (await monitoring.get("rules"))["groups"] for rule in group["rules"]]
