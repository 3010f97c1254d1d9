"""The limit of subscriptions of one connection."""

import pytest
from websockets.datastructures import Headers

from diem.links.edge import Admission, Admitted, admission_rules
from diem.protocol.messages import MAX_NAMES
from services.websocket.settings import Settings


@pytest.mark.parametrize("mode", ["single", "z-client"])
def test_client_may_subscribe_twice_to_1024_endpoints_at_once(mode: str) -> None:
    settings = Settings.model_validate({"mode": mode})
    assert settings.subscriptions == 1024
    outcome = Admission(admission_rules(settings)).admit("127.0.0.1", Headers(), 0.0)[1]
    assert isinstance(outcome, Admitted)
    for _ in range(2):
        for start in range(0, settings.subscriptions, MAX_NAMES):
            assert outcome.allowance.messages.take(0.0)
            outcome.allowance.charge_names(0.0, min(MAX_NAMES, settings.subscriptions - start))
