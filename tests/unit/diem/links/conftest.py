import pytest

from diem.links import dialer
from tests.support.patience import PATIENCE_S


@pytest.fixture(autouse=True)
def _patient_dials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ends of a link are in the process of the test, which may stand still for longer than a dial takes."""
    monkeypatch.setattr(dialer, "CONNECT_TIMEOUT_S", PATIENCE_S)
