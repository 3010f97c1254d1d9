from diem.fanout.read_meter import UNMETERED, ReadMeters


def test_reads_are_returned_once_and_in_parts_where_there_are_many_keys() -> None:
    meters = ReadMeters()
    for number, key in enumerate("abc"):
        meters.of(key).reads += number
    assert meters.of("b").reads == 1
    assert meters.drain(1) == {"b": 1}
    assert meters.drain(10) == {"c": 2}
    assert meters.drain(10) == {}


def test_reads_that_were_conflated_after_they_were_reported_count_against_later_ones() -> None:
    meters = ReadMeters()
    meter = meters.of("a")
    meter.reads -= 1
    assert meters.drain(10) == {}
    meter.reads += 3
    assert meters.drain(10) == {"a": 2}


def test_meter_is_kept_while_a_connection_uses_it_or_it_has_something_to_report() -> None:
    meters = ReadMeters()
    used, reported = meters.of("used"), meters.of("reported")
    meters.of("neither")
    reported.reads = 1
    meters.prune({used, UNMETERED})
    assert len(meters) == 2
    meters.drain(10)
    meters.prune({used})
    assert len(meters) == 1
    assert meters.of("used") is used


def test_only_keys_that_were_asked_about_change() -> None:
    meters = ReadMeters()
    first, second, third = (meters.of(key) for key in "abc")
    third.exhausted = True
    assert meters.set_exhausted({"a"}, {"a", "b", "of nobody"}) == {first}
    assert meters.set_exhausted({"a"}, {"a", "b"}) == set()
    assert [meter.exhausted for meter in (first, second, third)] == [True, False, True]
    assert sorted(meters.exhausted) == ["a", "c"]
    assert meters.set_exhausted((), {"a", "c"}) == {first, third}
    assert meters.exhausted == []
