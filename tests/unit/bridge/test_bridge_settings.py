import pytest

from bridge.settings import Settings


def test_a_bridge_is_named_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_BRIDGE_NUMBER", "7")
    monkeypatch.setenv("DIEM_BRIDGE_INTERNAL_PORT", "9207")
    monkeypatch.setenv("DIEM_KAFKA_BOOTSTRAP_SERVERS", "kafka:9092")
    monkeypatch.setenv("DIEM_KAFKA_TOPIC_PREFIX", "test.")
    settings = Settings.load()
    assert (settings.process_name, settings.internal_port) == ("bridge-7", 9207)
    assert settings.kafka().names.x_group(settings.number) == "test.x-007"
