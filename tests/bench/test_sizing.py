"""What ``make bench-sizing`` makes of measurements, on a synthetic cluster whose behaviour is known."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import orjson
import pytest

from tests.bench import sizing
from tests.bench.report import Report
from tests.bench.sizing import Bench, Task, assessments, goals, parts, picture
from tests.bench.sizing_fit import Assessment, Verdict
from tests.bench.sizing_laws import LAWS, fetcher_ratios, single_partition_rates
from tests.load import bench

SIZE = 6_000_000
ELECTION_S = 4e-5
Result = dict[str, Any]


def result(kind: str, found: object, **configuration: int) -> Result:
    name = " ".join(f"{key}={value}" for key, value in configuration.items())
    return {"kind": kind, "name": name, "configuration": configuration, "found": found}


def transfer(n: int, r: int, g: int, p: int) -> Result:
    """Bytes are what a cluster must move; time and CPU time are those of brokers that share one machine."""
    leads = [p // n + (node < p % n) for node in range(n)]
    brokers = {}
    for node, led in enumerate(leads):
        own, copies = SIZE * led / p, (r - 1) * SIZE / n
        brokers[str(node)] = {
            "disk": r * SIZE / n,
            "cpu_s": 0.02 * (r + 2 * g) / n * SIZE / 1e6,
            "from_clients": own,
            "to_clients": g * own,
            "from_brokers": copies,
            "to_brokers": (r - 1) * own,
        }
    found = {"bytes": SIZE, "seconds": SIZE / 1e6 * (0.05 + 0.01 * r + 0.02 * g), "brokers": brokers, "load": 1.0}
    return result("transfer", found, n=n, r=r, g=g, p=p)


def latency(n: int, r: int, p: int, fetchers: int) -> Result:
    """Followers copy one after the other, and idle partitions cost nothing."""
    delays = {"one": 0.002 + 1e-5 * (r - 1) * p / n, "all": 0.002 + 1e-5 * (r - 1) * p / fetchers, "idle": 0.002}
    block: dict[str, Any] = {name: {"delay_s": delay} for name, delay in delays.items()}
    block |= {"cpu_s": 0.01 + 2e-5 * r * p, "topic_files": r * p / n, "topic_mappings": 2 * r * p / n, "load": 1.0}
    return result("latency", [block], n=n, r=r, p=p, fetchers=fetchers)


def broker(n: int, r: int, p: int, session_s: int) -> Result:
    first = session_s + 0.4
    found = {"led": p / n, "first_s": first, "last_s": first + 0.05 + ELECTION_S * p / n, "load": 1.0}
    return result("broker", found, n=n, r=r, p=p, session_s=session_s)


def controller(n: int, r: int, p: int) -> Result:
    return result("controller", {"away_s": 1.5, "longest_write_s": 0.1, "load": 1.0}, n=n, r=r, p=p)


def single(n: int, r: int, p: int) -> Result:
    return result("single", {"bytes": SIZE, "seconds": 0.1, "load": 1.0}, n=n, r=r, p=p)


def consumers(n: int, r: int, p: int, k: int, records: int) -> Result:
    found = {"records": records, "cpu_s": 0.01 * k + 5e-6 * records, "seconds": records / 1e5, "load": 1.0}
    return result("consumers", found, n=n, r=r, p=p, k=k, records=records)


def cluster() -> list[Result]:
    ns, rs, ps = (3, 5), (2, 3), (30, 300, 1000, 3000)
    return [
        *(transfer(n, r, g, p) for n, r, g in product(ns, rs, (0, 1, 2)) for p in (1, n - 1, n, 4 * n)),
        *(latency(*at) for at in product(ns, rs, ps, (1, 4))),
        *(broker(*at) for at in product(ns, rs, ps, (3, 9))),
        *(controller(*at) for at in product(ns, rs, ps)),
        *(
            consumers(n, 2, p, k, records)
            for n in ns
            for p, k in ((1, 1), (4, 1), (4, 2))
            for records in (10_000, 30_000)
        ),
    ]


RESULTS = cluster()
MADE: Mapping[str, Callable[..., Result]] = {
    made.__name__: made for made in (transfer, latency, broker, controller, single, consumers)
}


@pytest.fixture(scope="module")
def found() -> Mapping[str, Assessment]:
    every = {name: each for name, each in assessments(RESULTS).items() if isinstance(each, Assessment)}
    assert len(every) == len(LAWS)
    return every


def test_verdicts_are_those_of_the_behaviour(found: Mapping[str, Assessment]) -> None:
    assert {name: each.verdict for name, each in found.items()} == {
        "3": Verdict.FAILS,  # its brokers share one machine
        "3, CPU": Verdict.HOLDS,
        "4": Verdict.HOLDS,
        "5": Verdict.FAILS,  # it leaves out what leaders send to followers
        "5, one way": Verdict.HOLDS,
        "6": Verdict.HOLDS,
        "9": Verdict.HOLDS,
        "10": Verdict.FAILS,  # its followers share the cores
        "10, all leaders": Verdict.FAILS,
        "10, idle": Verdict.HOLDS,
        "10, CPU": Verdict.HOLDS,
        "11": Verdict.OTHER_CONSTANT,
        "11, elections": Verdict.OTHER_CONSTANT,
        "11, controller": Verdict.HOLDS,
        "5.3, files": Verdict.OTHER_CONSTANT,  # only the records stay open: indexes are mapped
        "5.3, mappings": Verdict.HOLDS,
    }


def test_detection_is_told_apart_from_elections(found: Mapping[str, Assessment]) -> None:
    estimates = found["11"].estimates
    assert estimates["session timeout"].value == pytest.approx(1)
    assert estimates["constant"].value == pytest.approx(0.45)
    assert estimates["p / n"].value == pytest.approx(ELECTION_S)
    assert found["11, elections"].estimates["p / n"].value == pytest.approx(ELECTION_S)


def test_goals_are_of_bytes_and_of_what_does_not_depend_on_the_machine(found: Mapping[str, Assessment]) -> None:
    assert len(goals(RESULTS, found)) == 6
    assert all(goal.reached for goal in goals(RESULTS, found))


def test_four_fetchers_are_compared_with_one_on_the_same_configuration() -> None:
    ratios = fetcher_ratios(RESULTS)
    assert len(ratios) == 16
    assert ratios["n=3 r=3 p=3000"] == pytest.approx(0.017 / 0.062)


def test_a_consumer_alone_on_one_partition_is_t_c() -> None:
    assert single_partition_rates(RESULTS)["T_C, records/s: n=3 r=2 p=1 k=1 records=10000"] == pytest.approx(100_000)


def test_times_of_a_busy_machine_decide_nothing(found: Mapping[str, Assessment]) -> None:
    busy = [{**each, "found": _under_load(each["found"])} for each in RESULTS]
    for name, each in assessments(busy).items():
        assert isinstance(each, Assessment)
        assert each.estimates == found[name].estimates
        assert each.verdict is (Verdict.UNDECIDED if LAWS[name].timed else found[name].verdict)


def _under_load(found: Any) -> Any:
    return [_under_load(each) for each in found] if isinstance(found, list) else {**found, "load": 1000.0}


def test_every_measured_configuration_is_in_the_picture(found: Mapping[str, Assessment]) -> None:
    drawn = ET.fromstring(picture(RESULTS, found))  # noqa: S314 - our own text
    texts = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("n=5 r=3 p=3000 session_s=9") == 2
    assert f"Equation 11: {LAWS['11'].quantity}, s: {Verdict.OTHER_CONSTANT}" in texts


def test_few_measurements_are_no_verdict() -> None:
    every = assessments(RESULTS[:3])
    assert all(isinstance(each, str) and each.startswith("too few measurements") for each in every.values())


def test_measurements_are_planned_once_and_cover_every_kind() -> None:
    tasks = [task for part in parts() for task in part.tasks]
    assert len({task.key for task in tasks}) == len(tasks)
    assert {task.kind for task in tasks} == {*sizing.MEASURE}


class Killed(BaseException):
    """Ends a run where it is."""


async def test_an_interrupted_run_continues_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    every = parts()[-2:]
    total = sum(len(part.tasks) for part in every)
    limit, measured = total // 2, list[str]()

    class Scripted(Bench):
        async def _measure(self, part: sizing.Part, tasks: Sequence[Task]) -> None:
            for task in tasks:
                if len(measured) == limit:
                    raise Killed
                measured.append(task.key)
                self.results[task.key] = MADE[task.kind](**task.configuration)
                sizing.write(self, {})

    with pytest.raises(Killed):
        await Scripted(Report(total), tmp_path, {}).run(every)
    before = orjson.loads((tmp_path / "sizing.json").read_bytes())["results"]
    assert [*before] == measured
    assert len(before) == limit
    limit = total
    await Scripted(Report(total), tmp_path, before).run(every)
    assert len(measured) == len({*measured}) == total
