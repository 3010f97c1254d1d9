"""The start of the Data Service: what must not be published, and what a stand-by has loaded."""

from pathlib import Path
from typing import Any

import pytest

from diem.process.auth import SharedKey
from diem.process.clock import SystemClock
from diem.process.key_ring import KeyRing
from diem.process.lifecycle import Lifecycle
from services.data import main
from services.data.errors import StoreInUse
from services.data.limits import StoreLimits
from services.data.main import PUBLISHER, _open_store, _private_paths
from services.data.settings import Settings
from services.data.store.store import Store


@pytest.mark.parametrize(
    ("given", "private"),
    [
        ({"kafka_sasl_password_file": "/p/password"}, "/p/password"),
        ({"kafka_key_file": "/p/key", "kafka_certificate_file": "/p/certificate"}, "/p/key"),
        ({"kafka_certificate_file": "/p/both"}, "/p/both"),
        ({"tls_certificate": "/p/both"}, "/p/both"),
        ({"tls_certificate": "/p/certificate", "tls_key": "/p/key"}, "/p/key"),
    ],
)
def test_files_with_keys_and_passwords_are_private_and_certificates_are_not(
    given: dict[str, str], private: str
) -> None:
    aliased = {f"DIEM_{name.upper()}" if name.startswith("kafka_") else name: each for name, each in given.items()}
    paths = _private_paths(Settings.model_validate(aliased))
    assert [path for path in paths if path.is_relative_to("/p")] == [Path(private)]


def test_the_file_of_the_url_of_the_store_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_DATA_DATABASE_URL_FILE", "/p/url")
    assert Path("/p/url") in _private_paths(Settings())


@pytest.mark.parametrize("brokers", ["127.0.0.1:1", None])
async def test_a_stand_by_has_loaded_what_it_publishes_with_before_its_files_may_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brokers: str | None
) -> None:
    async def open_store(*_: object, **__: object) -> Any:
        life.stop("seen")
        raise StoreInUse("another process has it")

    monkeypatch.setattr(Store, "open", open_store)
    loaded: list[str] = []
    monkeypatch.setattr(main, "import_module", loaded.append)
    key = tmp_path / "internal.key"
    SharedKey.create(key)
    given = {"DIEM_KAFKA_BOOTSTRAP_SERVERS": brokers, "state_dir": tmp_path, "internal_port": 0, "standby": True}
    settings, life = Settings.model_validate(given), Lifecycle(1.0)
    assert await _open_store(settings, StoreLimits(), life, SystemClock(), KeyRing.load(key)) is None
    assert loaded == ([] if brokers is None else [PUBLISHER])
