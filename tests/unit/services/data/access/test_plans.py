"""Plans: the endpoints that they cover, and their tables in diem.toml."""

from pathlib import Path

import pytest

from services.data.access.plans import STANDARD, AccessPlan, AccessPlans, RequestLimits
from services.data.sources.config import load
from tests.unit.services.data.sources.toml import assert_fault, write

GOOD = """\
[[source]]
type = "simulation"

[[plan]]
name = "free"
per_minute = 60
per_day = 1000

[[plan]]
name = "prices"
per_day = 100
prefixes = ["/dam", "/my/prices"]
"""


def test_plans_are_read(tmp_path: Path) -> None:
    assert [each.plan for each in load(write(tmp_path, GOOD)).plan] == [
        AccessPlan("free", 60, 1000),
        AccessPlan("prices", None, 100, ("/dam", "/my/prices")),
    ]


def test_a_user_has_a_tenth_of_the_plan_unless_it_says_otherwise(tmp_path: Path) -> None:
    assert AccessPlan("a", 600, 100_000).limits_of_user == (60, 10_000)
    assert AccessPlan("a", 3).limits_of_user == (1, None)
    assert AccessPlan("a").limits_of_user == (None, None)
    given = GOOD.replace("per_day = 1000", "per_user_per_minute = 20\nper_user_per_day = 90")
    (free, _) = load(write(tmp_path, given)).plan
    assert free.plan == AccessPlan("free", 60, per_user=RequestLimits(20, 90))
    assert free.plan.limits_of_user == (20, 90)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("per_day = 1000", "per_day = '1000'", 'line 7, [[plan]] 1 "free", per_day: expected a whole number'),
        ('"/my/prices"', '"my/prices"', 'line 12, [[plan]] 2 "prices", prefixes: it must be'),
        ('["/dam", "/my/prices"]', "[]", 'line 12, [[plan]] 2 "prices", prefixes: must not be empty'),
        ('name = "free"\n', "", "line 4, [[plan]] 1: missing field `name`"),
        ('"free"', '"fr ee"', 'line 5, [[plan]] 1 "fr ee", name: expected at most 32 letters'),
        ('"simulation"', '"simulation"\nname = 1', "line 3, [[source]] 1, name: expected text in quotes"),
    ],
)
def test_a_fault_is_named_with_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert_fault(tmp_path, GOOD.replace(old, new), expected)


def test_a_source_and_a_plan_may_share_a_name(tmp_path: Path) -> None:
    assert load(write(tmp_path, GOOD.replace('"free"', '"market"'))).plan[0].name == "market"


@pytest.mark.parametrize(
    ("endpoint", "allowed"),
    [("/dam", True), ("/dam/prices/GR", True), ("/damage", False), ("/", False), ("/load/GR", False)],
)
def test_a_prefix_matches_whole_segments(endpoint: str, allowed: bool) -> None:
    assert AccessPlan("a", prefixes=("/dam",)).may_read(endpoint) is allowed
    assert AccessPlan("a").may_read(endpoint)


def test_a_key_cannot_have_the_anonymous_plan() -> None:
    plans = AccessPlans([AccessPlan("anonymous", 10), AccessPlan("free", 60)])
    assert list(plans) == ["free"]
    assert plans.anonymous == AccessPlan("anonymous", 10)
    assert AccessPlans().anonymous is None


@pytest.mark.parametrize(
    ("tables", "names"),
    [
        ("", ["standard"]),
        ('[[plan]]\nname = "anonymous"\nper_minute = 60\n', ["standard"]),
        ('[[plan]]\nname = "free"\n', ["free"]),
    ],
)
def test_the_plan_standard_is_there_unless_others_are_configured(tmp_path: Path, tables: str, names: list[str]) -> None:
    plans = AccessPlans.configured(load(write(tmp_path, tables)).plan)
    assert list(plans) == names
    assert plans.get("standard") in {STANDARD, None}
