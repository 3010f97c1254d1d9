"""Rights of plan and token together, and their positions among sorted names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.data.access import rights
from services.data.access.rights import ReadRights, common_rights

# Characters on both sides of "/", of which "/" + 1 is one.
_NAMES = st.lists(st.sampled_from(["a", "b", "a-", "a0", "a~"]), min_size=1, max_size=3).map(
    lambda segments: "".join(f"/{segment}" for segment in segments)
)
_PREFIXES = st.lists(_NAMES, max_size=6).map(tuple)


def of(*prefixes: str) -> ReadRights:
    found = common_rights((prefixes,))
    assert found is not None
    return found


def covers(prefixes: tuple[str, ...], name: str) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}/") for prefix in prefixes)


def test_without_any_list_everything_is_covered_and_by_an_empty_one_nothing() -> None:
    assert common_rights(()) is None
    assert of().prefixes == ()
    assert common_rights((("/dam",), ())) == of()
    assert not of().allows("/dam")


@given(st.lists(_PREFIXES, min_size=1, max_size=3), st.lists(_NAMES, unique=True))
def test_the_covered_names_are_those_that_every_list_covers(granted: list[tuple[str, ...]], names: list[str]) -> None:
    found = common_rights(tuple(granted))
    assert found is not None
    names.sort()
    expected = [name for name in names if all(covers(prefixes, name) for prefixes in granted)]
    assert [name for name in names if found.allows(name)] == expected
    assert [names[at] for span in found.spans(names) for at in span] == expected


@given(_PREFIXES, _NAMES, st.lists(_NAMES))
def test_rights_overlap_a_prefix_if_a_name_at_or_below_it_could_be_covered(
    prefixes: tuple[str, ...], prefix: str, names: list[str]
) -> None:
    found = of(*prefixes)
    if any(found.allows(name) for name in (*names, *prefixes) if covers((prefix,), name)):
        assert found.overlaps(prefix)
    elif found.overlaps(prefix):
        assert covers(prefixes, prefix)


def test_rights_to_the_same_endpoints_are_equal_whatever_their_spelling() -> None:
    same = common_rights((("/load/GR", "/dam", "/dam/prices", "/dam"), ("/dam", "/load")))
    assert same == of("/dam", "/load/GR")
    assert hash(same) == hash(of("/load/GR", "/dam"))
    assert of("/dam/prices") != of("/dam")


@pytest.mark.parametrize("name", ["/damage", "/da", "/dam-old", "/dam0", "/x/dam"])
def test_a_prefix_covers_whole_segments(name: str) -> None:
    assert not of("/dam").allows(name)
    assert of("/dam").spans(sorted(["/dam", "/dam/a", name])) != [range(3)]


def test_the_remembered_combinations_are_bounded() -> None:
    for number in range(3 * rights.MAX_CACHED):
        of(f"/{number}")
    assert common_rights.cache_info().currsize == rights.MAX_CACHED
