"""A running system of each mode, started once for all the clauses of the contract."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from tests.e2e.contract.mode import ModeUnderTest
from tests.support.kafka import options_on
from tests.support.nginx import needs_nginx
from tests.support.required import in_cluster
from tests.support.running import running


class Case(NamedTuple):
    mode: str
    kafka: bool
    options: tuple[str, ...] = ()
    edges: tuple[str, ...] = ("websocket-1", "websocket-2")
    """The processes that clients are connected to."""

    @property
    def early(self) -> bool:
        """Whether updates may precede the reply to their subscription (docs/protocol.md section 1)."""
        return self.mode == "all-to-all"

    @property
    def name(self) -> str:
        return "-".join((self.mode, *(option for option in self.options if not option.startswith("-"))))


CASES = [
    Case("single", kafka=False, edges=("websocket-1",)),
    Case("all-to-all", kafka=False, options=("--servers", "2")),
    Case("x-broadcast", kafka=False, options=("--servers", "2")),
    Case("x", kafka=True, options=("--servers", "2", "--no-nginx")),
    Case("z-client", kafka=True, options=("--servers", "2")),
    Case("z-client", kafka=True, options=("--servers", "2", "--clones", "2"), edges=("websocket-1", "websocket-2")),
    Case("z-proxy", kafka=True, options=("--servers", "2"), edges=("proxy-1",)),
    Case("z-composite", kafka=True, options=("--servers", "2"), edges=("composite-1",)),
    Case(
        "xz",
        kafka=True,
        options=("--servers", "2", "--clones", "2", "--no-nginx"),
        edges=("composite-1", "composite-2"),
    ),
]
IN_OTHERS = {"all-to-all", "z-composite"}
NGINX = {"all-to-all", "x-broadcast"}
"""Those in which nginx stands in front, instead of a shared port."""


def marks(case: Case) -> list[pytest.MarkDecorator]:
    """One system is started once for all of its clauses, so they are one worker's."""
    one_worker = [pytest.mark.xdist_group(f"contract-{case.name}"), pytest.mark.takes(20)]
    if "--clones" in case.options and case.mode == "z-client":
        one_worker.append(in_cluster("xz has clones, too"))
    if case.mode in IN_OTHERS:
        one_worker.append(in_cluster("its parts are in other modes, too"))
    return [*one_worker, needs_nginx] if case.mode in NGINX else one_worker


PARAMS = [pytest.param(case, id=case.name, marks=marks(case)) for case in CASES]


@pytest.fixture(scope="module", params=PARAMS)
def case(request: pytest.FixtureRequest) -> Case:
    """A mode with its options. Not in the loop of the tests: the broker is started on one of its own."""
    case: Case = request.param
    if not case.kafka:
        return case
    return case._replace(options=(*case.options, *options_on(request.getfixturevalue("kafka"))))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mode(case: Case, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ModeUnderTest]:
    directory: Path = tmp_path_factory.mktemp("contract")
    async with running(directory, case.mode, options=(*case.options, "--clients-per-address", "500")) as system:
        yield ModeUnderTest(case.mode, case.edges, system, early=case.early)
