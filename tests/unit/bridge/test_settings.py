import pytest

from bridge.settings import Settings
from diem.process.settings import BadSettings
from diem.protocol.assignment import Owner


def test_a_bridge_is_named_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_BRIDGE_NUMBER", "7")
    monkeypatch.setenv("DIEM_BRIDGE_INTERNAL_PORT", "9207")
    monkeypatch.setenv("DIEM_KAFKA_BOOTSTRAP_SERVERS", "kafka:9092")
    monkeypatch.setenv("DIEM_KAFKA_TOPIC_PREFIX", "test.")
    settings = Settings.load()
    assert (settings.process_name, settings.internal_port) == ("bridge-7", 9207)
    assert settings.kafka().names.x_group(settings.number) == "test.x-007"
    assert settings.clone is None


def test_a_bridge_of_a_group_has_the_urls_of_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_BRIDGE_NUMBER", "12")
    monkeypatch.setenv("DIEM_BRIDGE_CLONE", "2")
    monkeypatch.setenv("DIEM_BRIDGE_SERVER_INTERNAL_URL", "ws://inside:9101/ws")
    with pytest.raises(BadSettings, match="DIEM_BRIDGE_SERVER_PUBLIC_URL"):
        Settings.load()
    monkeypatch.setenv("DIEM_BRIDGE_SERVER_PUBLIC_URL", "http://outside/ws")
    with pytest.raises(BadSettings, match="ws://"):
        Settings.load()
    monkeypatch.setenv("DIEM_BRIDGE_SERVER_PUBLIC_URL", "wss://outside/ws")
    assert Settings.load().owner == Owner("b012", "ws://inside:9101/ws", "wss://outside/ws")
