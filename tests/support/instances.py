"""Synthetic subscriptions: communities of clients with common interests and Zipf popularity, or the latter alone."""

from dataclasses import dataclass, replace

import numpy as np

from metadata.placement.blocks import Block, Floats, Ints
from metadata.placement.instance import Instance

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
    """Distinct subscriptions (client, endpoint), sorted, and the rates of endpoints, with mean 1 per second."""

    endpoints: int
    client: Ints
    endpoint: Ints
    rate: Floats

    def instance(self) -> Instance:
        """Return the instance with each client connected for an hour."""
        names = [f"/endpoint-{number}" for number in range(self.endpoints)]
        subscribers = np.bincount(self.endpoint, minlength=self.endpoints).astype(float)
        _, sizes = np.unique(self.client, return_counts=True)
        sets = Block(self.endpoint.astype(np.int32), sizes.astype(np.int32), np.full(sizes.size, HOUR, np.int64))
        return Instance.of(names, self.rate, subscribers, sets, HOUR)


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
    endpoint[outside] = ranks[_zipf(rng, count, recipe.zipf, int(outside.sum()))]
    inside = np.flatnonzero(~outside)
    inside = inside[np.argsort(home[client[inside]], kind="stable")]
    where, first = np.unique(home[client[inside]], return_index=True)
    for community, members in zip(where.tolist(), np.split(inside, first[1:]), strict=False):
        found = _zipf(rng, int(sizes[community]), recipe.zipf_inside, members.size)
        endpoint[members] = order[begins[community] + found]
    key = np.unique(client * count + endpoint)
    rate = rng.lognormal(0, 1.0, count)
    return Population(count, key // count, key % count, rate / rate.mean())


def drifted(before: Population, other: Population, share: float, seed: int = 5) -> Population:
    """Replace a ``share`` of the clients by those of ``other``, and multiply rates by exp(N(0, 0.5))."""
    rng = np.random.default_rng(seed)
    gone = rng.random(int(before.client.max()) + 1) < share
    stay, come = ~gone[before.client], gone[other.client]
    client = np.concatenate([before.client[stay], other.client[come]])
    endpoint = np.concatenate([before.endpoint[stay], other.endpoint[come]])
    order = np.lexsort((endpoint, client))
    rate = before.rate * np.exp(rng.normal(0, 0.5, before.endpoints))
    return replace(before, client=client[order], endpoint=endpoint[order], rate=rate)


def _zipf(rng: np.random.Generator, count: int, exponent: float, draws: int) -> Ints:
    """Draw ranks from 0, the most popular."""
    share = np.arange(1, count + 1, dtype=float) ** -exponent
    found: Ints = np.minimum(np.searchsorted(np.cumsum(share / share.sum()), rng.random(draws)), count - 1)
    return found
