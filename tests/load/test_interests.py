from random import Random

from tests.load.interests import Interests

NAMES = [f"/{number:03}" for number in range(200)]


def test_client_of_a_community_looks_mostly_at_what_others_of_it_look_at() -> None:
    interests, random = Interests(NAMES, 16, seed=1), Random(1)
    sets = [set(interests.first(number, 8, random)) for number in range(320)]
    assert all(len(wants) == 8 for wants in sets)
    first, second = set().union(*sets[0::16][:2]), set().union(*sets[1::16][:2])
    pairs = [(sets[number], sets[number + 16]) for number in range(160)]
    beside = [(sets[number], sets[number + 1]) for number in range(160)]
    # Two of 12 or 13 endpoints share more than half; two strangers next to nothing.
    assert sum(len(a & b) for a, b in pairs) > 4 * sum(len(a & b) for a, b in beside)
    assert first != second


def test_client_that_has_all_of_its_community_goes_elsewhere() -> None:
    interests = Interests(NAMES, 100, seed=1)
    found = interests.first(0, 20, Random(2))
    assert len(set(found)) == 20


def test_without_communities_interests_are_those_of_a_sample() -> None:
    assert Interests(NAMES, 0, seed=1).first(3, 8, Random(5)) == Random(5).sample(NAMES, 8)
    assert Interests(NAMES, 0, seed=1).another(3, NAMES[1:], Random(5)) == NAMES[0]
