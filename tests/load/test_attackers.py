"""Attackers do what they should, against a small system that refuses it."""

import asyncio
import contextlib
import time
from collections import Counter
from pathlib import Path

import pytest

from diem.tokens.errors import TokenInvalid
from diem.tokens.verifier import Verifier
from tests.load import attackers as attackers_module
from tests.load.attackers import Attackers, Plan, Refused, forged_tokens
from tests.load.injection.attack import ATTACKS, MOST_ENDPOINTS, QUICK_SECONDS, Visits, goals_of
from tests.support.patience import PATIENCE_S
from tests.support.small import System, small_system
from tests.support.tokens import Issuer, key_set

ISSUER = Issuer()


def issued(now: float, sub: str = "alice") -> str:
    return ISSUER.token(now, sub=sub, prefixes=["/load-test/000"])


NOW = time.time()
"""Of the import of this module: tests may run when the tokens of that time have expired."""
VALID = issued(NOW)
FORGED = forged_tokens(VALID, ISSUER.kid, ISSUER.jwk["x"])


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    # Attackers and system share a loop: a stall of it is no refusal.
    monkeypatch.setattr(attackers_module, "OPEN_SECONDS", PATIENCE_S)


def attackers_of(system: System) -> Attackers:
    token = issued(time.time())
    at = ("127.0.0.1", system.settings.port)
    plan = Plan(
        websocket=(*at, "/ws"),
        rest=at,
        token=token,
        other_tokens=[issued(time.time(), "bob")],
        user_token=token,
        quota_token=token,
        write_key="",
        endpoints=["/load-test/000", "/load-test/001"],
    )
    attackers = Attackers(plan)
    attackers.tokens = forged_tokens(token, ISSUER.kid, ISSUER.jwk["x"])
    return attackers


@pytest.mark.parametrize(("kind", "token"), FORGED, ids=[kind for kind, _ in FORGED])
def test_forged_token_is_invalid_where_the_one_that_it_is_made_of_is_valid(kind: str, token: str) -> None:
    verifier = Verifier([ISSUER.key])
    assert verifier.verify(VALID, NOW).subject == "alice"
    with pytest.raises(TokenInvalid):
        verifier.verify(token, NOW)


async def test_attacks_are_refused_or_ended_and_counted(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set(ISSUER))
    async with small_system(tmp_path, anonymous="off", token_keys=[str(keys)]) as system:
        attackers = attackers_of(system)
        counts = attackers.counts
        await attackers.burst("127.0.4.1")
        assert counts["burst: 4003"] == 1
        await attackers.churn("127.0.4.2")
        assert counts["churn: admitted"] == 1
        async with asyncio.timeout(PATIENCE_S):
            await attackers.forge_names("127.0.4.3")
        for number in range(20):
            with contextlib.suppress(Refused):
                await attackers.forge_tokens(f"127.0.5.{1 + number}")
        assert counts["forge_tokens: 4501"] > 0
        assert counts["forge_tokens: ACCEPTED"] == 0


async def test_accepted_token_is_counted(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set(ISSUER))
    async with small_system(tmp_path, anonymous="off", token_keys=[str(keys)]) as system:
        attackers = attackers_of(system)
        attackers.tokens = [("valid", attackers.plan.token)]
        async with asyncio.timeout(PATIENCE_S):
            await attackers.forge_tokens("127.0.4.1")
        assert attackers.counts["forge_tokens: ACCEPTED"] > 0


def test_forgeries_that_only_met_limits_of_rates_do_not_count_as_refused() -> None:
    served = Visits([0.1], [0.1])
    visits = {"before": served, "during": served, "after": served}
    counts = Counter({f"{name}: attempts": 10 for name in ATTACKS} | {"burst: 4003": 1})
    more = {"network: admitted": 1, "resubscribe: data": 1, "fill: 422": 1}
    forged = more | {"forge_names: admitted": 10, "forge_tokens: 401": 5, "forge_tokens: 4501": 5}
    assert missed(counts + Counter(forged), visits) == []
    limited = more | {"forge_names: admitted": 1, "forge_names: 429": 9, "forge_tokens: 429": 10}
    assert missed(counts + Counter(limited), visits) == [
        "attack, forged tokens that were refused as such",
        "attack, share of forge_tokens that met the check itself",
        "attack, share of forge_names that met the check itself",
    ]
    filled = forged | {"fill: endpoints": MOST_ENDPOINTS + 50}
    assert missed(counts + Counter(filled), visits) == ["attack, endpoints of one write key"]


def missed(counts: Counter[str], visits: dict[str, Visits]) -> list[str]:
    return [goal.name for goal in goals_of(counts, visits, QUICK_SECONDS) if not goal.reached]
