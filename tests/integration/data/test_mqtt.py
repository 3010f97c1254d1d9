"""Messages of a real Mosquitto as endpoints, while broker, service and store come and go."""

import asyncio
import gc
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from diem.process.clock import ManualClock
from services.data.errors import StoreUnavailable
from services.data.sources.config import load
from services.data.sources.mqtt import connection
from services.data.sources.mqtt.table import MqttTable
from services.data.sources.runner import SourceRunner
from services.data.sources.trial import try_sources
from services.data.store.store import Store
from tests.integration.data import process
from tests.support.certificates import Authority
from tests.support.file_threads import FILES
from tests.support.mosquitto import SAVED, Broker, Publisher, needs_mosquitto, running
from tests.support.patience import PATIENCE_S
from tests.support.required import in_cluster

pytestmark = needs_mosquitto
DYNAMIC_SECURITY = Path("/usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so")
KILLS = int(os.environ.get("DIEM_MQTT_KILLS", "3"))
NOW_MS = 1_767_225_600_000
TABLE = """\
[[source]]
type = "mqtt"
name = "plant"
url = "mqtt://127.0.0.1:{port}"
topics = ["plant/#"]
endpoint = "/iot/{{topic}}"
"""


class Service:
    """A Data Service's store with its sources, in this process."""

    def __init__(self, store: Store, runner: SourceRunner) -> None:
        self.store = store
        self.runner = runner

    @property
    def status(self) -> dict[str, Any]:
        return self.runner.status()[0]

    @property
    def stopped(self) -> tuple[str, str] | None:
        intake = self.runner.health()[0].intake
        assert intake is not None
        return intake.stopped

    async def until(self, **wanted: Any) -> None:
        """Wait for fields of the status."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while any(self.status[name] != value for name, value in wanted.items()):
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{self.status} instead of {wanted}") from None

    async def content(self, endpoint: str) -> bytes:
        return (await self.store.reader.current(endpoint)).content

    async def has(self, endpoint: str, content: bytes) -> None:
        """Wait until an endpoint has a content."""
        async with asyncio.timeout(PATIENCE_S):
            while endpoint not in self.store.index.heads or await self.content(endpoint) != content:
                await asyncio.sleep(0.01)

    def versions(self, endpoint: str) -> int:
        return self.store.index.heads[endpoint].version - NOW_MS + 1


@asynccontextmanager
async def serving(directory: Path, text: str) -> AsyncIterator[Service]:
    """Run the sources of a configuration; time stands still, so that each version is one more."""
    file = directory / "diem.toml"
    file.write_text(text)
    clock = ManualClock(wall_ms=NOW_MS)
    runner = SourceRunner.configured(load(file), clock, convert=FILES.convert)
    async with (await Store.open(f"sqlite:///{directory / 'data.db'}", clock=clock)).serving() as store:
        task = asyncio.create_task(runner.run(store.writer.put, None, store))
        try:
            yield Service(store, runner)
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(Broker(tmp_path, f"allow_anonymous true\n{SAVED}")) as found:
        yield found


@pytest.fixture
async def publisher(broker: Broker) -> AsyncIterator[Publisher]:
    found = Publisher(broker.port)
    yield found
    await found.close()


@pytest.mark.parametrize("version", ["5", "3.1.1"])
async def test_messages_are_stored_by_their_topic_and_missed_ones_after_a_restart(
    tmp_path: Path, broker: Broker, publisher: Publisher, version: str
) -> None:
    text = TABLE.format(port=broker.port) + f'version = "{version}"\n'
    async with serving(tmp_path, text) as service:
        await service.until(ok=True)
        await publisher.publish("plant/1/state", '{"on": true}')
        await service.has("/iot/plant/1/state", b'{"on":true}')
        await service.until(records=1)
    for n in range(50):
        await publisher.publish(f"plant/{n % 5}/state", f'{{"n": {n}}}')
    async with serving(tmp_path, text) as service:
        await service.until(records=50)
        assert [await service.content(f"/iot/plant/{n}/state") for n in range(5)] == [
            b'{"n":%d}' % n for n in range(45, 50)
        ]
        assert service.versions("/iot/plant/1/state") == 11
        await publisher.publish("plant/1/state", "7")
        await service.has("/iot/plant/1/state", b"7")


async def test_retained_messages_are_the_beginning_and_an_empty_one_ends_its_endpoint(
    tmp_path: Path, broker: Broker, publisher: Publisher
) -> None:
    for n in range(3):
        await publisher.publish(f"plant/{n}", f"{n}", retain=True)
    text = TABLE.format(port=broker.port)
    async with serving(tmp_path, text) as service:
        await service.until(records=3)
        await publisher.publish("plant/2", "", retain=True)
        await service.until(records=4)
        assert service.store.index.heads["/iot/plant/2"].gone
    async with serving(tmp_path, text) as service:
        # They are sent again: equal content is no new version.
        await service.until(records=2)
        assert service.versions("/iot/plant/0") == 1


async def test_retained_messages_are_no_notices_of_a_kept_session(
    tmp_path: Path, broker: Broker, publisher: Publisher
) -> None:
    await publisher.publish("plant/1", "1", retain=True)
    text = TABLE.format(port=broker.port) + 'kind = "notice"\n'
    async with serving(tmp_path, text) as service:
        await service.until(records=1)
    async with serving(tmp_path, text) as service:
        await publisher.publish("plant/2", "1")
        await service.until(records=1)
        assert service.versions("/iot/plant/1") == 1


async def test_values_are_points_at_the_time_of_their_arrival_and_levels_of_topics_are_names(
    tmp_path: Path, broker: Broker, publisher: Publisher
) -> None:
    await publisher.publish("plant/7/temperature", "20", retain=True)
    series = 'kind = "series"\nunit = "celsius"\nresolution = "irregular"\nformat = "text"\n'
    text = TABLE.format(port=broker.port).replace("/iot/{topic}", "/sensors/{topic/2}-{topic/3}") + series
    async with serving(tmp_path, text) as service:
        await service.until(ok=True)
        await publisher.publish("plant/7/temperature", "21.5")
        await service.until(records=1)
        stored = await service.content("/sensors/7-temperature")
        assert b'"points":[{"time":"2026-01-01T00:00:00Z","value":21.5}]' in stored


async def test_a_message_is_acknowledged_once_it_is_stored(
    tmp_path: Path, broker: Broker, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, TABLE.format(port=broker.port)) as service:
        await service.until(ok=True)
        with monkeypatch.context() as full:
            full.setattr(service.store.writer, "failure", "the disk is full")
            full.setattr(service.store.writer, "enqueue", _refuses)
            await publisher.publish("plant/1", "1")
            await service.until(ok=False, error="the disk is full")
        await service.has("/iot/plant/1", b"1")
        await service.until(ok=True, records=1)


def _refuses(_write: object) -> Any:
    raise StoreUnavailable("the disk is full")


@pytest.mark.parametrize("policy", ["stop", "skip"])
async def test_a_message_that_cannot_be_stored_stops_the_source_or_is_skipped(
    tmp_path: Path, broker: Broker, publisher: Publisher, policy: str
) -> None:
    text = TABLE.format(port=broker.port) + f'on_invalid = "{policy}"\n'
    async with serving(tmp_path, text) as service:
        await service.until(ok=True)
        for payload in ("1", "ON", "2"):
            await publisher.publish("plant/1", payload)
        if policy == "stop":
            await service.until(ok=False, records=1)
            assert "not JSON" in service.status["error"]
            assert "(key: format)" in service.status["error"]
            assert await service.content("/iot/plant/1") == b"1"
            # As `diem sources replay plant --skip` does; each attempt stops there again.
            async with asyncio.timeout(PATIENCE_S):
                while (stopped := service.stopped) is None:
                    await asyncio.sleep(0.01)
            await service.runner.go_on_at("plant", dict([stopped]), service.store)
        await service.has("/iot/plant/1", b"2")
        assert service.versions("/iot/plant/1") == 2
        await service.until(ok=True)


async def test_a_kept_session_of_other_topics_brings_none_of_them(
    tmp_path: Path, broker: Broker, publisher: Publisher
) -> None:
    text = TABLE.format(port=broker.port)
    async with serving(tmp_path, text) as service:
        await service.until(ok=True)
    async with serving(tmp_path, text.replace("plant/#", "plant/+/state")) as service:
        await service.until(ok=True)
        await publisher.publish("plant/1/other", "1")
        await publisher.publish("plant/1/state", "2")
        await service.has("/iot/plant/1/state", b"2")
        assert "/iot/plant/1/other" not in service.store.index.heads


async def test_more_than_there_is_room_for_waits_at_the_broker(
    tmp_path: Path, broker: Broker, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "WAITING_BYTES", 3 * connection.MESSAGE_BYTES)
    text = TABLE.format(port=broker.port) + "qos = 0\n"
    async with serving(tmp_path, text) as service:
        await service.until(ok=True)
        sending = [publisher.publish(f"plant/{n % 10}", f"{n}", qos=0) for n in range(100)]
        await asyncio.gather(*sending)
        await service.until(records=100)
        assert [await service.content(f"/iot/plant/{n}") for n in range(10)] == [b"%d" % n for n in range(90, 100)]


async def failed(service: Service) -> str:
    """Wait for an error of the source; return it."""
    async with asyncio.timeout(PATIENCE_S):
        while service.status["error"] is None:
            await asyncio.sleep(0.01)
    return str(service.status["error"])


async def test_a_broker_that_is_not_there_is_an_error_until_it_is(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    async with serving(tmp_path, TABLE.format(port=broker.port)) as service:
        assert "cannot be reached: [Errno 111]" in await failed(service)
        async with running(broker):
            await service.until(ok=True)


@pytest.mark.parametrize("version", ["5", "3.1.1"])
async def test_a_wrong_password_is_an_error(tmp_path: Path, version: str) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("diem:secret-of-the-plant\n")
    await (await asyncio.create_subprocess_exec("mosquitto_passwd", "-U", str(passwords))).wait()
    own = tmp_path / "mqtt.key"
    own.write_text("another")
    own.chmod(0o600)
    async with running(Broker(tmp_path, f"allow_anonymous false\npassword_file {passwords}\n")) as broker:
        text = TABLE.format(port=broker.port) + 'username = "diem"\npassword_file = "mqtt.key"\n'
        async with serving(tmp_path, text + f'version = "{version}"\n') as service:
            assert await failed(service) == "the broker refuses the connection: Not authorized"
            own.write_text("secret-of-the-plant")
            await service.until(ok=True)


@pytest.mark.skipif(not DYNAMIC_SECURITY.exists(), reason="this Mosquitto has no plugin for rights")
async def test_topics_that_may_not_be_read_are_an_error(tmp_path: Path) -> None:
    rights = tmp_path / "rights.json"
    rights.write_text('{"defaultACLAccess": {"subscribe": false}}')
    lines = f"allow_anonymous true\nplugin {DYNAMIC_SECURITY}\nplugin_opt_config_file {rights}\n"
    async with (
        running(Broker(tmp_path, lines)) as broker,
        serving(tmp_path, TABLE.format(port=broker.port)) as service,
    ):
        assert await failed(service) == "the broker refuses the topic plant/#: Not authorized"


async def test_a_cancellation_at_the_same_time_as_an_answer_ends_the_wait() -> None:
    table = MqttTable(type="mqtt", name="plant", url="mqtt://127.0.0.1", topics=["plant/#"], endpoint="/iot/{topic}")
    connecting = connection.MqttConnection(table, "client", keeps_session=False)
    waiting = asyncio.create_task(connecting._answer("connect"))
    await asyncio.sleep(0)
    connecting._answers["connect"].set_result(None)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.filterwarnings("ignore:unclosed <ssl")
async def test_a_broker_with_tls_proves_its_name_and_asks_for_a_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, client = authority.issue(), authority.issue(["diem"], "client")
    lines = (
        f"cafile {authority.file}\ncertfile {server.certificate}\nkeyfile {server.key}\nrequire_certificate true\n"
        "use_identity_as_username true\nallow_anonymous false\n"
    )
    async with running(Broker(tmp_path, lines)) as broker:
        text = TABLE.format(port=broker.port).replace("mqtt://127", "mqtts://127")
        files = f'ca_file = "{authority.file}"\n'
        own = f'certificate_file = "{client.certificate}"\nkey_file = "{client.key}"\n'
        async with serving(tmp_path, text + files + own) as service:
            await service.until(ok=True)
        for wrong in (own, files):
            async with serving(tmp_path, text + wrong) as service:
                await failed(service)
    # The library leaves its socket behind where a handshake fails.
    gc.collect()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_broker_that_ends_and_starts_again_loses_nothing_that_it_has_saved(
    tmp_path: Path, broker: Broker, publisher: Publisher, number: signal.Signals
) -> None:
    async with serving(tmp_path, TABLE.format(port=broker.port)) as service:
        await service.until(ok=True)
        sent = 0
        for _ in range(2):
            for _ in range(20):
                await publisher.publish(f"plant/{sent}", "1")
                sent += 1
            if number == signal.SIGKILL:
                # It may have acknowledged a message that it has neither saved nor sent.
                await service.has(f"/iot/plant/{sent - 1}", b"1")
            await broker.end(number)
            await broker.start()
        async with asyncio.timeout(PATIENCE_S):
            while any(f"/iot/plant/{n}" not in service.store.index.heads for n in range(sent)):
                await asyncio.sleep(0.01)
        await service.until(ok=True)


@in_cluster("it kills processes for some seconds")
async def test_kills_of_the_service_lose_no_message(tmp_path: Path) -> None:
    chance, state, last = random.Random(7), tmp_path / "state", dict.fromkeys(range(10), 0)
    ending = False
    async with running(Broker(tmp_path, "allow_anonymous true\nmax_queued_messages 0\n")) as broker:
        publisher = Publisher(broker.port)

        async def publish() -> None:
            while not ending:
                for n in last:
                    await publisher.publish(f"plant/{n}", f"{last[n] + 1}")
                    last[n] += 1

        text = TABLE.format(port=broker.port)
        publishing = asyncio.create_task(publish())
        for _ in range(KILLS):
            async with process.serving(state, config=text, **process.RESTARTED) as killed:
                await asyncio.sleep(chance.uniform(0.1, 0.5))
                await killed.end(signal.SIGKILL)
        ending = True
        await publishing
        await publisher.close()
        async with (
            process.serving(state, config=text, **process.RESTARTED) as service,
            httpx.AsyncClient(trust_env=False) as http,
            asyncio.timeout(PATIENCE_S),
        ):
            for n, value in last.items():
                while (found := await http.get(f"{service.url}/v1/data/iot/plant/{n}")).text != str(value):
                    assert int(found.text) < value
                    await asyncio.sleep(0.05)


async def test_a_trial_shows_what_is_retained_and_leaves_no_session(
    tmp_path: Path, broker: Broker, publisher: Publisher
) -> None:
    await publisher.publish("plant/1", "1", retain=True)
    (tmp_path / "diem.toml").write_text(TABLE.format(port=broker.port))
    (found,) = await try_sources(load(tmp_path / "diem.toml"), ManualClock())
    assert [each.endpoint for each in found.endpoints] == ["/iot/plant/1"]
    await publisher.publish("plant/2", "ON", retain=True)
    (found,) = await try_sources(load(tmp_path / "diem.toml"), ManualClock())
    assert found.error is not None
    assert found.error.startswith("1 of 2 messages cannot be stored: plant/2 ")
