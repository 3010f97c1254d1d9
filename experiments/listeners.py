"""Instance R of ``make bench-placement``: the pairs of a file, or made ones of the shape of Last.fm 2k."""

from pathlib import Path

import numpy as np

from tests.support.instances import Population, of_sets, zipf_ranks


def listeners(seed: int = 7) -> Population:
    """R without a file: 1,892 clients with 50 endpoints each, of the shape of Last.fm 2k, but made up.

    Each client has three of 60 genres of very unequal sizes; a tenth of what it draws is from all genres. There and
    inside of genres popularity follows Zipf's law. So 19,301 endpoints occur (in Last.fm 2k 17,632), half of them for
    one client (in Last.fm 60 %), and the most popular one for 503 (611).
    """
    clients, items, most, draws, genres = 1892, 40_000, 50, 250, 60
    rng = np.random.default_rng(seed)
    size = rng.lognormal(0, 1.0, genres)
    genre = rng.choice(genres, items, p=size / size.sum())
    own = rng.choice(genres, (clients, 3), p=size / size.sum())
    drawn = np.take_along_axis(own, rng.integers(0, 3, (clients, draws)), 1)
    drawn[rng.random(drawn.shape) < 0.1] = -1
    item = np.empty(drawn.shape, np.int64)
    for number in range(-1, genres):
        members = rng.permutation(items) if number < 0 else np.flatnonzero(genre == number)
        here = drawn == number
        item[here] = members[zipf_ranks(rng, members.size, 0.75 if number < 0 else 1.6, int(here.sum()))]
    sets: list[list[int]] = [list(dict.fromkeys(row.tolist()))[:most] for row in item]
    found = np.unique([each for pins in sets for each in pins])
    place = {each: number for number, each in enumerate(found.tolist())}
    rate = rng.lognormal(0, 1.0, found.size)
    pins = [sorted(place[each] for each in row) for row in sets]
    return of_sets(tuple(f"/item/{item}" for item in found.tolist()), pins, rate / rate.mean())


def read_pairs(path: Path, seed: int = 7) -> Population:
    """R: the distinct pairs of user and item in the first two columns of a text file, with log-normal rates.

    Columns are separated by a comma, a tab or spaces; a first line that is not of two numbers is a heading. The files
    of MovieLens 100k (``u.data``) and of Last.fm 2k (``user_artists.dat``) have this form.
    """
    rows = [line.replace(",", " ").split()[:2] for line in path.read_text().splitlines() if line.strip()]
    if rows and not "".join(rows[0]).isdecimal():
        del rows[0]
    client = np.unique([row[0] for row in rows], return_inverse=True)[1]
    items, endpoint = np.unique([row[1] for row in rows], return_inverse=True)
    key = np.unique(client.astype(np.int64) * items.size + endpoint)
    rate = np.random.default_rng(seed).lognormal(0, 1.0, items.size)
    names = tuple(f"/item/{name}" for name in items.tolist())
    return Population(items.size, key // items.size, key % items.size, rate / rate.mean(), names)
