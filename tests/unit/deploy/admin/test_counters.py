from deploy.admin.counters import REFUSED, SAMPLE_S, SAMPLES, Counters, History

A = ("websocket-1", "deliveries")


def sampled(*samples: tuple[float, int]) -> Counters:
    counters = Counters()
    for now, value in samples:
        counters.update(now, {A: value})
    return counters


def test_rate_needs_two_samples_and_averages_over_five_seconds() -> None:
    assert sampled((0.0, 10)).rate(A) is None
    assert sampled((0.0, 10), (1.0, 16)).rate(A) == 6.0
    assert sampled((0.0, 0), (5.0, 100), (10.0, 110)).rate(A) == 2.0


def test_restarted_process_counts_from_the_start() -> None:
    counters = sampled((0.0, 1000), (1.0, 1010), (2.0, 3))
    assert counters.rate(A) is None
    assert counters.increase(A) == 0


def test_increase_is_of_the_last_minute() -> None:
    counters = sampled(*((float(second), second * 10) for second in range(200)))
    assert counters.increase(A) == 600
    assert len(counters._samples[A]) <= 62


def test_counters_of_processes_that_are_gone_are_forgotten() -> None:
    counters = sampled((0.0, 1))
    counters.update(1.0, {})
    assert not counters.names()
    assert counters.rate(A) is None
    assert counters.increase(A) == 0


def test_samples_before_a_long_gap_are_dropped() -> None:
    counters = sampled((0.0, 10), (1.0, 11), (3600.0, 511))
    assert (counters.increase(A), counters.rate(A)) == (0, None)


def test_first_refusals_of_a_known_process_are_an_increase() -> None:
    cause = ("websocket-1", f"{REFUSED}.origin")
    counters = sampled((0.0, 10))
    counters.update(2.0, {A: 10, cause: 500})
    assert (counters.increase(cause), counters.rate(cause)) == (500, 250.0)


def test_refusals_before_the_first_update_are_none_of_the_last_minute() -> None:
    cause = ("websocket-1", f"{REFUSED}.origin")
    counters = Counters()
    counters.update(0.0, {A: 10, cause: 500})
    assert counters.increase(cause) == 0
    counters.update(3600.0, {A: 10, cause: 900, ("websocket-1", f"{REFUSED}.token"): 3})
    assert (counters.increase(cause), counters.increase(("websocket-1", f"{REFUSED}.token"))) == (0, 0)


def test_history_has_a_sample_in_ten_seconds_of_the_last_quarter_of_an_hour() -> None:
    history = History()
    assert history.columns() == {"at": []}
    for second in range(3600):
        history.add(float(second), 1000 * second, {"clients": second, "delay_seconds": None})
    columns = history.columns()
    last = 3600 - int(SAMPLE_S)
    expected = [last - SAMPLE_S * sample for sample in reversed(range(SAMPLES))]
    assert columns == {"at": [1000 * at for at in expected], "clients": expected, "delay_seconds": [None] * SAMPLES}
