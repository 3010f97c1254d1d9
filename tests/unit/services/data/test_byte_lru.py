from services.data.byte_lru import ByteLru


def cache(max_bytes: int = 10) -> ByteLru[str, bytes]:
    return ByteLru(max_bytes, len)


def test_evicts_the_least_recently_used_beyond_its_bytes() -> None:
    values = cache()
    values.put("a", b"1234")
    values.put("b", b"1234")
    assert values.get("a") == b"1234"
    values.put("c", b"1234")
    assert [value in values for value in "abc"] == [True, False, True]
    assert values.bytes == 8


def test_looking_at_a_value_does_not_use_it() -> None:
    values = cache()
    values.put("a", b"1234")
    values.put("b", b"1234")
    assert values.peek("a") == b"1234"
    values.put("c", b"1234")
    assert "a" not in values
    assert values.peek("a") is None


def test_a_value_takes_the_place_of_the_one_before() -> None:
    values = cache()
    values.put("a", b"12345678")
    values.put("a", b"12")
    assert (values.bytes, list(values.values())) == (2, [b"12"])


def test_a_value_beyond_the_bound_is_not_kept() -> None:
    values = cache()
    values.put("a", b"1")
    values.put("b", 11 * b"1")
    assert (values.bytes, len(values)) == (0, 0)


def test_drop_removes_what_is_there() -> None:
    values = cache()
    values.put("a", b"1")
    values.drop("a")
    values.drop("a")
    assert (values.bytes, values.get("a")) == (0, None)
