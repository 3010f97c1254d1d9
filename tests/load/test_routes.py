"""Routing of the load clients, by the cases that the SDK runs, too (``tests/cases/routes.json``)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import pytest

from diem.links.client.backoff import Timing
from tests.load.routes import Located, Routes, RoutingAction
from tests.unit.diem.links.client.test_cases import Drawn, Step, steps_of

IN_MS: Final = Timing(**{field.name: 1000 * getattr(Timing(), field.name) for field in fields(Timing)})
"""Routes do not depend on the unit of time; in milliseconds the times of the cases are exact."""


def answer_of(step: Step) -> Located:
    hot = frozenset(step.get("hot", ()))
    owners: dict[str, str | None] = dict.fromkeys(hot) | step.get("owners", {})
    rejected = {name: {"code": "bad_name", "message": ""} for name in step.get("rejected", ())}
    return Located(owners, hot, step.get("servers", ()), rejected, older=step.get("older", False))


class Router:
    """Applies the steps of a case, each by the method of its name, to routes."""

    def __init__(self) -> None:
        self.routes = Routes(IN_MS, Drawn())

    def apply(self, step: Step) -> list[RoutingAction]:
        actions: list[RoutingAction] | None = getattr(self, step["do"])(step, step["at"])
        return actions or []

    def add(self, step: Step, now: float) -> None:
        many = [f"/e/{number}" for number in range(step.get("many", 0))]
        for name in many or [step["endpoint"]]:
            self.routes.add(name, now)

    def arrive(self, step: Step, now: float) -> list[RoutingAction]:
        name, url = step["endpoint"], step["server"]
        self.routes.add(name, now)
        self.routes.located(self.routes.to_locate(now), Located({name: url}), {}, now)
        return self.routes.registered(url, [name], now)

    def remove(self, step: Step, now: float) -> list[RoutingAction]:
        return self.routes.remove(step["endpoint"], now)

    def to_locate(self, step: Step, now: float) -> None:
        names = self.routes.to_locate(now)
        assert names == step.get("names", names)
        assert len(names) == step.get("count", len(names))

    def locate(self, step: Step, now: float) -> list[RoutingAction]:
        self.to_locate(step, now)
        return self.located(step, now)

    def located(self, step: Step, now: float) -> list[RoutingAction]:
        return self.routes.located(step["names"], answer_of(step), step.get("open", {}), now)

    def unanswered(self, step: Step, now: float) -> None:
        self.routes.unanswered(step["names"], now)

    def registered(self, step: Step, now: float) -> list[RoutingAction]:
        return self.routes.registered(step["server"], step["endpoints"], now)

    def moved(self, step: Step, now: float) -> list[RoutingAction]:
        return self.routes.moved(step["server"], step["endpoints"], step["owner"], now)

    def not_owner(self, step: Step, now: float) -> list[RoutingAction]:
        return self.routes.not_owner(step["server"], step["endpoint"], step["owner"], now)

    def over_limit(self, step: Step, now: float) -> list[RoutingAction]:
        return self.routes.over_limit(step["server"], step["endpoint"], now)

    def lost(self, step: Step, _now: float) -> list[RoutingAction]:
        return self.routes.lost(step["server"])

    def suspect(self, step: Step, now: float) -> None:
        self.routes.suspect(step["server"], now)


def state_of(routes: Routes, then: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of the state that a step names."""
    read = {"url": routes.url, "registered": routes.is_registered, "refused": routes.is_refused, "uses": routes.uses}
    due = None if routes.next_due == math.inf else routes.next_due
    return {key: due if key == "due" else {name: read[key](name) for name in names} for key, names in then.items()}


@pytest.mark.parametrize("steps", steps_of("routes"))
def test_routes(steps: Sequence[Step]) -> None:
    router = Router()
    for number, step in enumerate(steps):
        shown = [f"{'+' if kind == 'join' else '-'}{name} {url}" for kind, name, url in router.apply(step)]
        assert shown == step.get("actions", []), (number, step)
        assert state_of(router.routes, step.get("then", {})) == step.get("then", {}), (number, step)
