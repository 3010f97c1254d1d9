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


@pytest.mark.parametrize(
    ("host", "url_host"),
    [
        ("10.244.0.7", "10.244.0.7"),
        ("fd00::7", "[fd00::7]"),
        ("[fd00::7]", "[fd00::7]"),
        ("pair-6.pairs", "pair-6.pairs"),
    ],
)
def test_urls_and_static_membership_follow_from_the_pod(
    monkeypatch: pytest.MonkeyPatch, host: str, url_host: str
) -> None:
    monkeypatch.setenv("DIEM_BRIDGE_NUMBER", "pair-6")
    monkeypatch.setenv("DIEM_BRIDGE_CLONE", "1")
    monkeypatch.setenv("DIEM_BRIDGE_SERVER_HOST", host)
    settings = Settings.load()
    assert settings.process_name == "bridge-7"
    assert settings.owner == Owner("b007", f"ws://{url_host}:9101/ws", f"ws://{url_host}:8101/ws")


def test_urls_follow_from_the_address_of_the_listener_if_others_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_BRIDGE_CLONE", "1")
    monkeypatch.setenv("DIEM_BRIDGE_INTERNAL_HOST", "10.77.0.2")
    monkeypatch.setenv("DIEM_BRIDGE_SERVER_PUBLIC_URL", "wss://outside/ws")
    assert Settings.load().owner == Owner("b001", "ws://10.77.0.2:9101/ws", "wss://outside/ws")
    for nowhere in ("0.0.0.0", "::", "127.0.0.1", "localhost"):
        monkeypatch.setenv("DIEM_BRIDGE_INTERNAL_HOST", nowhere)
        with pytest.raises(BadSettings, match="DIEM_BRIDGE_SERVER_HOST"):
            Settings.load()


@pytest.mark.parametrize("host", ["a b", "host/path", "user@host", "10.0.0.1:80"])
def test_what_is_no_host_is_refused(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("DIEM_BRIDGE_SERVER_HOST", host)
    with pytest.raises(BadSettings, match="DIEM_BRIDGE_SERVER_HOST: "):
        Settings.load()
