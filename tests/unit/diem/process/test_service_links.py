import pytest

from diem.process.service_links import is_service_link, service_links

OF_ONE_SERVICE = {
    "DIEM_DATA_SERVICE_HOST": "10.96.0.7",
    "DIEM_DATA_SERVICE_PORT": "8080",
    "DIEM_DATA_SERVICE_PORT_HTTP": "8080",
    "DIEM_DATA_PORT": "tcp://10.96.0.7:8080",
    "DIEM_DATA_PORT_8080_TCP": "tcp://10.96.0.7:8080",
    "DIEM_DATA_PORT_8080_TCP_PROTO": "tcp",
    "DIEM_DATA_PORT_8080_TCP_PORT": "8080",
    "DIEM_DATA_PORT_8080_TCP_ADDR": "10.96.0.7",
}
"""All that Kubernetes makes for a Service ``diem-data`` with a port named ``http``."""


def test_every_variable_of_a_service_is_recognised() -> None:
    assert service_links({**OF_ONE_SERVICE, "HOME": "/", "REDIS_SERVICE_HOST": "10.96.0.9"}, "DIEM_") == sorted(
        OF_ONE_SERVICE
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DIEM_PORT", "tcp://[fd00::7]:80"),
        ("DIEM_WEBSOCKET_INTERNAL_PORT", "udp://10.96.0.7:53"),
        ("DIEM_DATA_SERVICE_HOST", "fd00::7"),
    ],
)
def test_other_forms_of_service_links(name: str, value: str) -> None:
    assert is_service_link(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DIEM_DATA_PORT", "8080"),
        ("DIEM_DATA_PORT", "http://10.96.0.7:8080"),
        ("DIEM_DATA_PROT", "tcp://10.96.0.7:8080"),
        ("DIEM_DATA_SERVICE_HOST", "data.example"),
        ("DIEM_DATA_SERVICE_PORT", "http"),
        ("DIEM_DATA_PORT_HTTP_TCP", "tcp"),
        ("DIEM_DATA_INTERNAL_HOST", "10.96.0.7"),
    ],
)
def test_settings_and_misspelt_settings_are_no_service_links(name: str, value: str) -> None:
    assert not is_service_link(name, value)
