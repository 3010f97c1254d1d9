"""Settings of the Data Service: defaults within the state directory, faults in one line."""

from pathlib import Path

import pytest

from diem.process.settings import BadSettings
from services.data.settings import Settings


def test_files_lie_in_the_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_STATE_DIR", str(tmp_path))
    settings = Settings.load()
    assert settings.database_url.get_secret_value() == f"sqlite:///{tmp_path}/data.db"
    assert settings.write_key_file == tmp_path / "write.key"
    assert settings.page_dir.parts[-2:] == ("client", "dist")


def test_a_websocket_server_without_port_or_url_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_DATA_WEBSOCKET_SERVERS", '[{"path":"/ws"}]')
    with pytest.raises(BadSettings, match="a port and a path, or a url"):
        Settings.load()


def test_a_metadata_service_without_port_or_url_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_DATA_METADATA_SERVICES", '[{"path":"/v1"}]')
    with pytest.raises(BadSettings, match="each of the metadata services"):
        Settings.load()


def test_hot_endpoints_must_be_valid_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_DATA_HOT", '["/dam/prices/GR"]')
    assert Settings.load().hot == ["/dam/prices/GR"]
    monkeypatch.setenv("DIEM_DATA_HOT", '["/dam/prices/GR","dam"]')
    with pytest.raises(BadSettings, match="not the name of an endpoint: 'dam'"):
        Settings.load()


def test_every_setting_has_a_description() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
