"""The start of the Data Service: what must not be published."""

from pathlib import Path

import pytest

from services.data.main import _private_paths
from services.data.settings import Settings


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
