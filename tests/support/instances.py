"""Instances of subscriptions, made ones and the demo page's; and windows of them over time.

``A``, ``B`` and ``Z`` are recipes of :func:`population`: communities of clients with common interests and Zipf
popularity, or the latter alone. :func:`page` (P) has the views of the demo page, :func:`dashboards` (T) templates of
series that are filled with a zone. :func:`windows` adds time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from learning.placement.blocks import Block, Floats, Ints, expand_ranges
from learning.placement.instance import Instance
from packs.energy.model import ZONES, Market
from packs.energy.simulation import MarketSeries

HOUR = 3600


@dataclass(frozen=True)
class Recipe:
    """Parameters of a population. ``mixing`` is the share of subscriptions outside a client's community."""

    endpoints: int = 10_000
    clients: int = 100_000
    mean_subscriptions: float = 10
    communities: int = 250
    mixing: float = 0.2
    zipf: float = 0.8
    zipf_inside: float = 0.6
    seed: int = 0


A = Recipe(seed=1)
B = Recipe(endpoints=100_000, clients=1_000_000, communities=2500, seed=1)
Z = Recipe(mixing=1.0, zipf=1.0, seed=2)
OTHER = Recipe(seed=9)
"""A population with other interests than A's, for :func:`drifted`."""


@dataclass(frozen=True)
class Population:
    """Distinct subscriptions (client, endpoint), sorted, and the mean rates of endpoints in updates per second."""

    endpoints: int
    client: Ints
    endpoint: Ints
    rate: Floats
    names: tuple[str, ...] = ()
    """Names of the endpoints; by default they are numbered."""

    @property
    def clients(self) -> int:
        """Number of clients; each has at least one subscription."""
        return int(self.client[-1]) + 1

    def instance(self) -> Instance:
        """Return the instance with each client connected for an hour."""
        return self.window(np.arange(self.clients), np.full(self.clients, HOUR, np.int64), self.rate)

    def window(self, members: Ints, seconds: Ints, rate: Floats, busy: Floats | None = None) -> Instance:
        """Return the instance of an hour in which ``members`` were connected for ``seconds`` each.

        A client that occurs twice counts as two with the same subscriptions.
        """
        names = self.names or [f"/endpoint-{number}" for number in range(self.endpoints)]
        degree = np.bincount(self.client, minlength=self.clients)
        pins = expand_ranges((np.cumsum(degree) - degree)[members], degree[members])
        endpoint, sizes = self.endpoint[pins], degree[members]
        held = np.bincount(endpoint, weights=np.repeat(seconds, sizes), minlength=self.endpoints)
        clients = np.ones(sizes.size, np.int64)
        sets = Block(endpoint.astype(np.int32), sizes.astype(np.int32), seconds.astype(np.int64), clients)
        return Instance.of(names, rate, held / HOUR, sets, HOUR, busy=busy)


def population(recipe: Recipe) -> Population:
    """Generate a population. Degrees are 1 + geometric, at most 200; community sizes and rates are lognormal."""
    rng, count = np.random.default_rng(recipe.seed), recipe.endpoints
    degree = np.minimum(1 + rng.geometric(1 / (recipe.mean_subscriptions - 1), recipe.clients), 200)
    ranks = rng.permutation(count)
    share = rng.lognormal(0, 0.75, recipe.communities)
    ends = np.minimum(np.cumsum(np.maximum(4, np.round(share / share.sum() * count)).astype(np.int64)), count)
    ends[-1] = count
    order = rng.permutation(count)
    begins = np.append(0, ends[:-1])
    sizes = ends - begins
    real = np.flatnonzero(sizes >= 4)
    home = rng.choice(real, recipe.clients, p=sizes[real] / sizes[real].sum())
    client = np.repeat(np.arange(recipe.clients), degree)
    endpoint = np.empty(client.size, np.int64)
    outside = rng.random(client.size) < recipe.mixing
    endpoint[outside] = ranks[zipf_ranks(rng, count, recipe.zipf, int(outside.sum()))]
    inside = np.flatnonzero(~outside)
    inside = inside[np.argsort(home[client[inside]], kind="stable")]
    where, first = np.unique(home[client[inside]], return_index=True)
    for community, members in zip(where.tolist(), np.split(inside, first[1:]), strict=False):
        found = zipf_ranks(rng, int(sizes[community]), recipe.zipf_inside, members.size)
        endpoint[members] = order[begins[community] + found]
    key = np.unique(client * count + endpoint)
    rate = rng.lognormal(0, 1.0, count)
    return Population(count, key // count, key % count, rate / rate.mean())


def drifted(before: Population, other: Population, share: float, seed: int = 5, *, rates: float = 0.5) -> Population:
    """Replace a ``share`` of the clients by those of ``other``, and multiply rates by exp(N(0, ``rates``))."""
    rng = np.random.default_rng(seed)
    gone = rng.random(int(before.client.max()) + 1) < share
    stay, come = ~gone[before.client], gone[other.client]
    client = np.concatenate([before.client[stay], other.client[come]])
    endpoint = np.concatenate([before.endpoint[stay], other.endpoint[come]])
    order = np.lexsort((endpoint, client))
    rate = before.rate * np.exp(rng.normal(0, rates, before.endpoints))
    return replace(before, client=client[order], endpoint=endpoint[order], rate=rate)


def exchanged(before: Population, share: float, seed: int = 5) -> Population:
    """Exchange the subscribers of a ``share`` of the endpoints, at random; rates stay."""
    rng = np.random.default_rng(seed)
    some, other = np.flatnonzero(rng.random(before.endpoints) < share), np.arange(before.endpoints)
    other[some] = rng.permutation(some)
    endpoint = other[before.endpoint]
    return replace(before, endpoint=endpoint[np.lexsort((endpoint, before.client))])


def sampled(whole: Population, halvings: int) -> Instance:
    """Return an hour of all clients, with the sets of a sample of them: of one in 2**``halvings``."""
    members = np.arange(0, whole.clients, 2**halvings)
    sample = whole.window(members, np.full(members.size, HOUR, np.int64), whole.rate)
    subscribers = whole.instance().subscribers
    return replace(sample, subscribers=subscribers, weight=sample.weight << halvings, halvings=halvings)


def zipf_ranks(rng: np.random.Generator, count: int, exponent: float, draws: int) -> Ints:
    """Draw ranks from 0, the most popular."""
    share = np.arange(1, count + 1, dtype=float) ** -exponent
    found: Ints = np.minimum(np.searchsorted(np.cumsum(share / share.sum()), rng.random(draws)), count - 1)
    return found


def page(clients: int = 20_000, seed: int = 4) -> Population:
    """P: the demo page's endpoints at their rates, and clients that open views of it.

    Every client sees the day's prices of a zone, by Zipf's law of the zones' loads; 80 % the table of loads with
    their forecasts, 60 % the generation of the zone, 30 % the flows, 20 % the table of imbalances with prices.
    """
    series = MarketSeries(Market(1), 1).all
    number = {each.endpoint: index for index, each in enumerate(series)}
    zones = sorted(ZONES, key=lambda name: -ZONES[name].load)
    rng = np.random.default_rng(seed)
    zone = zipf_ranks(rng, len(zones), 1.0, clients)
    opened = rng.random((clients, 4)) < (0.8, 0.6, 0.3, 0.2)

    @cache
    def pins(zone: str, *opened: bool) -> list[int]:
        views = ("/load/",), (f"/generation/{zone}/",), ("/flows/",), ("/imbalance/", "/dam/prices/")
        shown = tuple(prefix for view, is_open in zip(views, opened, strict=True) if is_open for prefix in view)
        return sorted(number[name] for name in number if name == f"/dam/prices/{zone}" or name.startswith(shown))

    sets = [pins(zones[own], *views) for own, views in zip(zone.tolist(), opened.tolist(), strict=True)]
    rate = np.array([1 / each.every_s for each in series])
    return of_sets(tuple(number), sets, rate)


def dashboards(clients: int = 50_000, seed: int = 6) -> Population:
    """T: 50 series in each of 200 zones, and clients with one of 30 templates of series for one or two zones.

    Templates, zones and the series in templates follow Zipf's law; rates are those of the series times the zones'.
    """
    series, zones, templates = 50, 200, 30
    rng = np.random.default_rng(seed)
    of_template = [np.unique(zipf_ranks(rng, series, 0.7, int(rng.integers(2, 12)))) for _ in range(templates)]
    template = zipf_ranks(rng, templates, 0.8, clients)
    first, second = zipf_ranks(rng, zones, 0.9, clients), zipf_ranks(rng, zones, 0.9, clients)
    alone = rng.random(clients) < 0.7
    sets = [
        sorted({zone * series + each for zone in ({a} if single else {a, b}) for each in of_template[kind].tolist()})
        for kind, a, b, single in zip(template.tolist(), first.tolist(), second.tolist(), alone.tolist(), strict=True)
    ]
    rate = np.outer(rng.lognormal(0, 0.5, zones), rng.lognormal(0, 1.0, series)).ravel()
    return of_sets(tuple(f"/{zone}/{each}" for zone in range(zones) for each in range(series)), sets, rate)


def of_sets(names: tuple[str, ...], sets: list[list[int]], rate: Floats) -> Population:
    """Return a population by the endpoints of each client."""
    client = np.repeat(np.arange(len(sets)), [len(pins) for pins in sets])
    return Population(len(names), client, np.array([pin for pins in sets for pin in pins], np.int64), rate, names)


@dataclass(frozen=True)
class Timeline:
    """How a population uses the system over hours, each a window. The defaults are stationary traffic."""

    clients: int
    """Clients of a mean hour, drawn from the population."""
    returning: float = 0.0
    """Share of an hour's clients that come back in the next one."""
    session_s: float | None = None
    """Mean time connected, exponential within the hour; None: all of it."""
    bursts: float = 0.0
    """Share of the endpoints that publish in the first minute of each quarter-hour only; the others at any time."""
    day: float = 0.0
    """Amplitude of the day's curve of clients and rates, from 0 to 1; the peak is at 18:00."""
    seed: int = 0


def windows(population: Population, timeline: Timeline, count: int) -> Iterator[Instance]:
    """Yield the hours of a day: each has other clients of the same population, and Poisson counts of updates."""
    rng = np.random.default_rng(timeline.seed)
    members = np.zeros(0, np.int64)
    in_bursts = rng.random(population.endpoints) < timeline.bursts
    for hour in range(count):
        level = 1 + timeline.day * np.cos((hour - 18) / 12 * np.pi)
        number = int(rng.poisson(timeline.clients * level))
        stay = members[rng.random(members.size) < timeline.returning][:number]
        members = np.append(stay, rng.integers(0, population.clients, number - stay.size))
        seconds = np.full(number, HOUR, np.int64)
        if timeline.session_s is not None:
            seconds = np.clip(rng.exponential(timeline.session_s, number), 1, HOUR).astype(np.int64)
        # The busy minutes are three of the 60; if there are bursts they are three of these four minutes.
        share = np.where(in_bursts, 3 / 4, 3 / 60)
        expected = population.rate * level * HOUR
        in_busy, others = rng.poisson(expected * share), rng.poisson(expected * (1 - share))
        yield population.window(members, seconds, (in_busy + others) / HOUR, in_busy / 180)
