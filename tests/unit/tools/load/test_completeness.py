"""What counts as missed, and what as not checked."""

from tools.load.completeness import MAX_EXAMPLES, Completeness, Difference, Holding, compare, later_than

CATALOGUE = {"/a": 10, "/b": 20}


def test_the_version_of_the_catalogue_or_a_later_one_is_enough() -> None:
    found = compare([Holding(1, "/a", 10, subscribed=True), Holding(2, "/b", 25, subscribed=True)], CATALOGUE)
    assert found == Completeness(checked=2)


def test_an_earlier_version_or_none_is_missed() -> None:
    holdings = [Holding(1, "/a", 9, subscribed=True), Holding(2, "/b", None, subscribed=True, connected=False)]
    found = compare(holdings, CATALOGUE)
    assert (found.checked, found.missed, found.unconnected) == (2, 2, 1)
    assert found.examples == [Difference(1, "/a", 9, 10), Difference(2, "/b", None, 20)]


def test_what_was_never_subscribed_and_what_is_gone_is_not_checked() -> None:
    holdings = [Holding(1, "/a", None, subscribed=False), Holding(1, "/gone", 3, subscribed=True)]
    assert compare(holdings, CATALOGUE) == Completeness(unsubscribed=1, removed=1)


def test_a_client_that_must_fetch_has_missed_nothing() -> None:
    assert compare([Holding(1, "/a", 9, subscribed=True, resync=True)], CATALOGUE) == Completeness(
        checked=1, resynced=1
    )


def test_few_examples_are_kept() -> None:
    found = compare([Holding(number, "/a", 1, subscribed=True) for number in range(100)], CATALOGUE)
    assert (found.missed, len(found.examples)) == (100, MAX_EXAMPLES)


def test_later_versions_are_those_of_confirmed_subscriptions_that_the_catalogue_does_not_have() -> None:
    later = Holding(1, "/a", 11, subscribed=True)
    others = [
        Holding(1, "/b", 20, subscribed=True),
        Holding(2, "/b", None, subscribed=True),
        Holding(2, "/a", 12, subscribed=False),
        Holding(3, "/gone", 9, subscribed=True),
    ]
    assert later_than([*others, later], CATALOGUE) == [later]
