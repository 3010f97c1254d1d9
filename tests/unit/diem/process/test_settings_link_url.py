"""URLs of internal links: unusable ones are refused."""

import pytest

from diem.process.settings import BadSettings, ProcessSettings, check_link_url
from proxy.settings import Settings as ProxySettings
from services.broadcast.settings import Settings as BroadcastSettings
from services.websocket.settings import Settings as ServerSettings


@pytest.mark.parametrize(
    "url",
    [
        "ws://127.0.0.1:9080/feed",
        "ws://data.internal:9080/feed",
        "ws://[::1]:9400/watch",
        "ws://h/f?a=b",
        "wss://h/feed",
    ],
)
def test_links_go_to_websocket_urls(url: str) -> None:
    assert check_link_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "127.0.0.1:9080/feed",
        "ws:///feed",
        "ws://127.0.0.1:port/feed",
        "ws://127.0.0.1:99999/feed",
        "ws://127.0.0.1:0/feed",
        "ws://someone@127.0.0.1:9080/feed",
        "ws://127.0.0.1:9080/feed#part",
        "ws://127.0.0.1:9080/fe ed",
        "ws://[::1/feed",
        f"ws://{'a' * 64}:9080/feed",
        "ws://a..b:9080/feed",
        "http://127.0.0.1:9080/feed",
        "wss:///feed",
        "https://127.0.0.1:9080/feed",
    ],
)
def test_what_cannot_be_dialled_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="ws://host:port/path"):
        check_link_url(url)


@pytest.mark.parametrize(
    ("model", "variable", "value"),
    [
        (ServerSettings, "DIEM_WEBSOCKET_FEED_URL", "127.0.0.1:9080/feed"),
        (BroadcastSettings, "DIEM_BROADCAST_FEED_URL", "https://127.0.0.1:9080/feed"),
        (ProxySettings, "DIEM_PROXY_METADATA_URLS", '["ws://127.0.0.1:9400/watch", "nonsense"]'),
    ],
)
def test_a_process_with_a_bad_link_url_fails_with_one_line(
    monkeypatch: pytest.MonkeyPatch, model: type[ProcessSettings], variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(
        BadSettings, match=rf"^{variable}(\[[01]\])?: a link goes to ws://host:port/path or wss://host:port/path, not "
    ):
        model.load()


def test_reads_are_reported_to_one_of_several_internal_listeners_or_to_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ServerSettings.load().reads_url == []
    monkeypatch.setenv("DIEM_WEBSOCKET_READS_URL", "http://a:9080/v1/keys/reads,https://b:9080/v1/keys/reads")
    assert ServerSettings.load().reads_url == ["http://a:9080/v1/keys/reads", "https://b:9080/v1/keys/reads"]
    monkeypatch.setenv("DIEM_WEBSOCKET_READS_URL", "http://a:9080/v1/keys/reads,b:9080/v1/keys/reads")
    with pytest.raises(BadSettings, match=r"^DIEM_WEBSOCKET_READS_URL\[1\]: an internal request goes to http://host"):
        ServerSettings.load()
