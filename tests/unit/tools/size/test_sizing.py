"""``diem size`` from given figures: what follows from them, as table and JSON, and the command itself."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from deploy.terminal import plain_console
from learning.costs import Costs
from tools.size import report
from tools.size.sizing import GIVEN, Figure, Figures, Limits, Sizing, size

COSTS = Costs(update_us=5, delivery_us=10, connection_us_per_s=1.7)


def figures(**given: float) -> Figures:
    values = {"updates": 20_000.0, "subscribers": 4.0, **given}
    return Figures().replaced({name: Figure(value, GIVEN) for name, value in values.items()})


TWELVE = tuple(range(1, 13))


def sized(limits: Limits | None = None, **given: float) -> Sizing:
    return size(figures(**given), limits or Limits(planned=TWELVE), COSTS)


def shown(sizing: Sizing, capsys: pytest.CaptureFixture[str]) -> str:
    console = plain_console()
    for part in report.render(sizing):
        console.print(part)
    return capsys.readouterr().out


def test_the_smallest_count_that_is_even_enough_is_chosen() -> None:
    found = sized()
    assert (found.brokers, found.partitions, found.limits.replicas) == (3, 48, 3)
    # 20,000 updates/s of 5 + 4 x 10 us are 0.9 of a core.
    assert found.utilisation == pytest.approx(0.9)
    # 20,000 x 256 bytes in three replicas on three brokers, read by one group.
    assert found.solution.needs[0].limit == 20_000 * 256


def test_present_partitions_stay_if_they_are_even_enough() -> None:
    assert sized(partitions=60).partitions == 60
    assert sized(partitions=24).partitions == 48
    even = sized(Limits(planned=(1, 2, 3, 4, 6, 12)), partitions=12)
    assert even.partitions == 12
    assert "Keep the 12 partitions" in "\n".join(report.guideline(even))


def test_consumers_set_the_fewest_partitions_where_servers_share_updates() -> None:
    # 2,000,000 updates/s are 90 cores.
    found = sized(updates=2e6)
    assert (found.solution.fewest, found.solution.lower[0].name) == (90, "consumer throughput")
    assert found.partitions == 90
    assert "90 cores" in "\n".join(report.guideline(found))
    whole = size(replace(figures(updates=2e6), partitioned=False), Limits(planned=TWELVE), COSTS)
    assert (whole.solution.fewest, whole.partitions) == (12, 48)
    assert "Every server reads all updates in this mode, 90 of its core" in "\n".join(report.guideline(whole))


def test_brokers_are_as_many_as_throughput_needs() -> None:
    # 20,000 x 256 bytes x 3 replicas = 15.36 MB/s written in all.
    assert sized(Limits(storage=2e6)).brokers == 8
    assert sized(Limits(network=1e6), groups=5).brokers == 41


def test_a_cluster_that_is_too_small_is_named_with_its_factors(capsys: pytest.CaptureFixture[str]) -> None:
    found = sized(Limits(storage=2e6, unavailability_s=9.635), brokers=3)
    assert not found.solution.feasible
    out = shown(found, capsys)
    assert "It does not fit on 3 brokers:" in out
    assert "storage: 2.56 times too much, 5.12 MB/s of 2 MB/s (thesis eq. 4)" in out
    assert "planned consumers against unavailability: 2 times too much, 12 partitions of 6 partitions" in out
    assert "replicas: 3 times too much" in shown(sized(brokers=1), capsys)
    body = report.as_json(found)
    assert [each["name"] for each in body["excesses"]] == ["storage", "planned consumers against unavailability"]
    full = report.as_json(sized(other_partitions=20_000, brokers=3))
    assert full["excesses"][0]["factor"] is None


def test_report_names_what_binds(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(sized(), capsys)
    lines = {line.split("  ")[0]: " ".join(line.split()) for line in out.splitlines()}
    assert lines["replication latency"] == "replication latency at most 500 thesis eq. 10 <- binds"
    assert lines["unavailability"] == "unavailability at most 12,444 thesis eq. 11"
    assert "3 brokers, the fewest that it fits on; each stores 5.12 MB/s and has 6.83 MB/s in its network" in out
    assert "Create the topic with 48 partitions: 1.03 x the mean on average" in out
    body = json.loads(json.dumps(report.as_json(sized())))
    assert body["bounds"][0] == {"name": "planned consumers", "side": "at least", "limit": 12, "source": "paper eq. 2"}
    assert body["figures"]["updates_per_s"] == {"value": 20_000, "origin": "given"}
    assert body["most_partitions"] == 500


def test_unavailability_below_the_detection_of_a_loss_is_refused_with_the_remedy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = sized(Limits(unavailability_s=2, planned=TWELVE))
    assert (found.solution.feasible, found.brokers, found.partitions) == (False, 3, 48)
    out = shown(found, capsys)
    assert "It does not fit on 3 brokers:" in out
    assert "detection of a lost broker: 4.82 times too much, 9.63 s of 2 s (sizing 6)" in out
    assert "it needs broker.session.timeout.ms=1831 or less at the controllers" in out
    assert "or --unavailability 9.67 or more" in out
    assert report.as_json(found)["after_a_lost_broker"]["longest_session_timeout_s"] == pytest.approx(1.83178)
    assert sized(Limits(unavailability_s=2, planned=TWELVE), session_timeout_s=1.831).solution.feasible
    late = sized(Limits(unavailability_s=0.05, planned=(60,)))
    assert "elections alone take 0.05 s: fewer partitions, or more brokers" in shown(late, capsys)


def test_command_prints_json_and_says_what_does_not_fit(
    diem: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert diem("size", "--updates", "20000", "--json") == 0
    body = json.loads(capsys.readouterr().out)
    assert body["figures"]["updates_per_s"] == {"value": 20_000, "origin": "given"}
    assert diem("size", "--updates", "1000", "--unavailability", "2") == 1
    assert "detection of a lost broker" in capsys.readouterr().out
    assert diem("size", "--updates", "1000", "--unavailability", "2", "--session-timeout", "1.5") == 0
    assert "1.6 s until the loss is known" in capsys.readouterr().out
    assert diem("size", "--updates", "1000", "--brokers", "1") == 1
    assert "It does not fit on 1 broker" in capsys.readouterr().out


def test_a_load_is_given_in_the_words_of_recommend(
    diem: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    load = ("--updates", "50", "--clients", "20000", "--endpoints", "500", "--subscriptions", "5", "--bytes", "3500")
    assert diem("recommend", *load, "--json", "--state-dir", "none") == 0
    expected = json.loads(capsys.readouterr().out)["load"]["subscribers"]
    assert diem("size", *load, "--json") == 0
    found = json.loads(capsys.readouterr().out)["figures"]
    assert found["subscribers"] == {"value": expected, "origin": "given"}
    assert found["record_bytes"]["value"] == 256 + 3500
    assert diem("size", "--updates", "50", "--clients", "20000", "--endpoints", "500") == 0
    assert "clients / update 400 given" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "diem is not up in "),
        (["--updates", "-1"], "Invalid value for '--updates'"),
        (["--updates", "1", "--clients", "20000"], "--clients and --endpoints: both or neither"),
        (["--updates", "1", "--subscribers", "4", "--clients", "9"], "give --subscribers, or --clients, --endpoints"),
        (["--updates", "1", "--bytes", "9", "--record-bytes", "9"], "give --bytes, the data of an update, or"),
        (["--updates", "1", "--batch", "10"], "Kafka has a record for each update"),
        (["--updates", "1", "--planned", "0"], "--planned takes numbers from 1 to 1000"),
        (["--updates", "1", "--costs", "missing.json"], "missing.json has no costs: No such file"),
    ],
)
def test_bad_input_is_one_clear_error(
    diem: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert diem("size", *arguments) in {1, 2}
    err = capsys.readouterr().err
    assert expected in err
    assert len(err.splitlines()) == 1
