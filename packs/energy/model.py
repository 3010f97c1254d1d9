"""The market at one instant: zones, weather, demand, generation, flows, prices. Pure."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final


@dataclass(frozen=True, slots=True)
class Zone:
    """A bidding zone.

    ``load`` is its average demand in MW, ``plants`` the installed MW per type, ``utc_offset`` the hours of its clock,
    ``sun`` the share of the installed solar power that a clear noon in June yields.
    """

    name: str
    country: str
    load: float
    utc_offset: int
    sun: float
    plants: dict[str, float]


def _zone(name: str, country: str, load: float, utc_offset: int, sun: float, **plants: float) -> Zone:
    return Zone(name, country, load, utc_offset, sun, plants)


ZONES: Final = {
    zone.name: zone
    for zone in (
        _zone("GR", "Greece", 5900, 2, 0.80, solar=8500, wind=5400, hydro=3100, gas=6400, lignite=1500, biomass=120),
        _zone("BG", "Bulgaria", 4300, 2, 0.76, solar=4200, wind=700, hydro=2400, nuclear=2000, lignite=3300, gas=600,
              biomass=80),
        _zone("RO", "Romania", 6300, 2, 0.74, solar=3800, wind=3100, hydro=6400, nuclear=1300, lignite=2300, gas=2800,
              biomass=110),
        _zone("HU", "Hungary", 5100, 1, 0.72, solar=6300, wind=320, nuclear=1900, gas=3900, lignite=500, biomass=290),
        _zone("RS", "Serbia", 4000, 1, 0.74, solar=250, wind=620, hydro=2950, lignite=4000, gas=380),
        _zone("MK", "North Macedonia", 850, 1, 0.77, solar=650, wind=75, hydro=650, lignite=600, gas=280),
        _zone("AL", "Albania", 860, 1, 0.79, solar=350, hydro=2300, gas=200),
        _zone("ME", "Montenegro", 380, 1, 0.77, solar=60, wind=118, hydro=690, lignite=210),
        _zone("XK", "Kosovo", 680, 1, 0.76, solar=30, wind=137, hydro=100, lignite=960),
        _zone("BA", "Bosnia and Herzegovina", 1280, 1, 0.75, solar=220, wind=135, hydro=2150, lignite=1900),
        _zone("HR", "Croatia", 2050, 1, 0.75, solar=900, wind=1150, hydro=2200, gas=1250, coal=190, biomass=150),
        _zone("SI", "Slovenia", 1480, 1, 0.72, solar=1250, hydro=1180, nuclear=690, lignite=540, gas=560),
        _zone("IT-SUD", "Italy South", 2900, 1, 0.80, solar=5600, wind=5000, hydro=700, gas=6200, biomass=420),
        _zone("TR", "Türkiye", 38500, 3, 0.80, solar=17500, wind=12800, hydro=32000, gas=25000, coal=10400,
              lignite=10200, biomass=2100),
        _zone("CY", "Cyprus", 590, 2, 0.83, solar=800, wind=158, oil=1480),
    )
}  # fmt: skip

BORDERS: Final = {
    ("GR", "BG"): 1400, ("GR", "MK"): 900, ("GR", "AL"): 450, ("GR", "TR"): 600, ("GR", "IT-SUD"): 500,
    ("BG", "RO"): 2000, ("BG", "RS"): 700, ("BG", "MK"): 450, ("BG", "TR"): 700, ("RO", "HU"): 1300,
    ("RO", "RS"): 1000, ("HU", "RS"): 1000, ("HU", "HR"): 1600, ("HU", "SI"): 1100, ("RS", "MK"): 600,
    ("RS", "ME"): 450, ("RS", "BA"): 600, ("RS", "HR"): 550, ("RS", "XK"): 500, ("MK", "XK"): 350,
    ("AL", "ME"): 400, ("AL", "XK"): 550, ("AL", "MK"): 400, ("ME", "BA"): 500, ("ME", "XK"): 300,
    ("BA", "HR"): 900, ("HR", "SI"): 1500,
}  # fmt: skip
"""Net transfer capacity of each border in MW, the same in both directions."""

COSTS: Final = {
    "solar": (-25.0, 4.0),
    "wind": (-25.0, 6.0),
    "nuclear": (-90.0, -30.0),
    "biomass": (-40.0, 45.0),
    "hydro": (4.0, 165.0),
    "lignite": (58.0, 112.0),
    "coal": (70.0, 108.0),
    "gas": (76.0, 172.0),
    "oil": (118.0, 235.0),
}
"""The market price (EUR/MWh) at which plants of a type begin to run, and at which all of them run.

The ranges leave no gap between the renewable types and the others: in a gap supply does not react to the price, and
trade between zones would not converge.
"""

AVAILABLE: Final = {"nuclear": 0.94, "biomass": 0.75, "hydro": 0.52, "lignite": 0.72, "coal": 0.8, "gas": 0.9,
                    "oil": 0.92}  # fmt: skip
"""The share of a type's installed power that can run; for hydro, as the water allows."""


@lru_cache(maxsize=32768)
def _lattice(seed: int, name: str, index: int) -> float:
    digest = blake2b(f"{seed}/{name}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**63 - 1.0


def noise(seed: int, name: str, seconds: float, period_s: float) -> float:
    """Return value noise from -1 to 1, smooth over about ``period_s`` seconds and independent per name."""
    index, rest = divmod(seconds, period_s)
    part = rest / period_s
    smooth = part * part * (3 - 2 * part)
    before = _lattice(seed, name, int(index))
    return before + (_lattice(seed, name, int(index) + 1) - before) * smooth


_DAY_S: Final = 86_400
_YEAR_S: Final = 365.2425 * _DAY_S
_PRICE_FLOOR: Final = -90.0
_PRICE_CAP: Final = 400.0
_ROUNDS: Final = 12
"""Rounds of trade across the borders, after which prices of uncongested neighbours differ by about 1 EUR/MWh."""


@dataclass(frozen=True, slots=True)
class MarketSnapshot:
    """The market at an instant, in MW and EUR/MWh. Per zone: load = generation + imports - exports."""

    load: Mapping[str, float]
    price: Mapping[str, float]
    generation: Mapping[str, Mapping[str, float]]
    flow: Mapping[tuple[str, str], float]
    """Per border, positive from the first zone to the second."""


class Market:
    """The simulated market of some zones, a pure function of seed and time."""

    def __init__(self, seed: int, zones: Sequence[str] | None = None) -> None:
        self._seed = seed
        self.zones = {name: ZONES[name] for name in (zones if zones is not None else ZONES)}
        self.borders = {pair: ntc for pair, ntc in BORDERS.items() if self.zones.keys() >= set(pair)}

    def load(self, zone: Zone, seconds: float) -> float:
        """Return the demand in MW, from time of day, season, weekday and weather."""
        local = seconds + zone.utc_offset * 3600
        hour = local % _DAY_S / 3600
        weekday = int(local // _DAY_S + 3) % 7
        shape = 0.77 + 0.17 * _bump(hour, 9.0, 2.4) + 0.30 * _bump(hour, 20.0, 2.6) + 0.15 * _bump(hour, 13.5, 3.0)
        week = (1.0, 1.0, 1.0, 1.0, 1.0, 0.94, 0.89)[weekday]
        year = seconds % _YEAR_S / _YEAR_S * 2 * math.pi
        season = 1 + 0.07 * math.cos(2 * (year - 0.35))
        weather = 1 + 0.035 * noise(self._seed, f"load/{zone.name}", seconds, 5 * 3600)
        flicker = 1 + 0.004 * noise(self._seed, f"flicker/{zone.name}", seconds, 40)
        return zone.load * shape * week * season * weather * flicker

    def snapshot(self, seconds: float) -> MarketSnapshot:
        """Return the whole market at an instant (Unix seconds of simulated time)."""
        load = {name: self.load(zone, seconds) for name, zone in self.zones.items()}
        curves = {name: Curve(self._stack(zone, seconds)) for name, zone in self.zones.items()}
        demand = dict(load)
        flow = dict.fromkeys(self.borders, 0.0)
        for _ in range(_ROUNDS):
            for border, capacity in self.borders.items():
                origin, target = border
                dear, slope_there = curves[target].clearing(demand[target])
                cheap, slope_here = curves[origin].clearing(demand[origin])
                # Power flows to the dearer zone, as much as equalises both prices if nothing else changed.
                wanted = flow[border] + (dear - cheap) * slope_here * slope_there / (slope_here + slope_there)
                allowed = max(-capacity, min(capacity, wanted))
                demand[origin] += allowed - flow[border]
                demand[target] -= allowed - flow[border]
                flow[border] = allowed
        price = {name: curves[name].clearing(demand[name])[0] for name in self.zones}
        generation = {name: curves[name].dispatch(price[name], demand[name]) for name in self.zones}
        return MarketSnapshot(load, price, generation, flow)

    def _stack(self, zone: Zone, seconds: float) -> dict[str, float]:
        """Return the MW that could run, per type of plant."""
        return {kind: installed * self._available(zone, kind, seconds) for kind, installed in zone.plants.items()}

    def _available(self, zone: Zone, kind: str, seconds: float) -> float:
        if kind == "solar":
            clouds = 0.78 + 0.22 * noise(self._seed, f"clouds/{zone.name}", seconds, 4 * 3600)
            return zone.sun * _sun(zone, seconds) * clouds
        if kind == "wind":
            # Fronts of a day or more are shared by neighbours; gusts are each zone's own.
            front = noise(self._seed, "front", seconds - zone.utc_offset * 9000, 30 * 3600)
            own = noise(self._seed, f"wind/{zone.name}", seconds, 5 * 3600)
            gust = noise(self._seed, f"gust/{zone.name}", seconds, 240)
            strength = 0.5 + 0.28 * front + 0.2 * own + 0.012 * gust
            return max(0.02, min(0.92, 0.9 * math.pow(max(0.0, strength), 1.8)))
        drift = noise(self._seed, f"{kind}/{zone.name}", seconds, 20 * 3600)
        return AVAILABLE[kind] * (1 + 0.04 * drift)


def _bump(hour: float, centre: float, width: float) -> float:
    """Return a bell curve over the hours of the day, periodic at midnight."""
    distance = (hour - centre + 12) % 24 - 12
    return math.exp(-0.5 * (distance / width) ** 2)


def _sun(zone: Zone, seconds: float) -> float:
    """Return the sine of the solar elevation at latitude 40, relative to a noon in June; 0 at night."""
    declination = 0.409 * math.sin((seconds % _YEAR_S / _YEAR_S - 0.219) * 2 * math.pi)
    hour = (seconds + zone.utc_offset * 3600 - 12.6 * 3600) % _DAY_S / _DAY_S * 2 * math.pi
    height = 0.643 * math.sin(declination) + 0.766 * math.cos(declination) * math.cos(hour)
    return math.pow(max(0.0, height / 0.958), 1.15)


class Curve:
    """Supply curve of a zone: MW as a function of the price, linear between the costs of the types."""

    def __init__(self, stack: Mapping[str, float]) -> None:
        self._stack = stack
        self._prices = [_PRICE_FLOOR - 1, *sorted({cost for kind in stack for cost in COSTS[kind]}), _PRICE_CAP]
        self._supplies = [sum(self.running(price).values()) for price in self._prices]
        # Beyond the last plant, demand is curtailed at a price, so that every demand has a clearing price.
        self._supplies[-1] += 0.25 * sum(stack.values())

    def running(self, price: float) -> dict[str, float]:
        """Return the MW per type that run at a price."""
        running = {}
        for kind, power in self._stack.items():
            low, high = COSTS[kind]
            running[kind] = power * max(0.0, min(1.0, (price - low) / (high - low)))
        return running

    def clearing(self, demand: float) -> tuple[float, float]:
        """Return the price at which supply meets ``demand``, and the slope there in MW per EUR/MWh."""
        index = min(max(bisect_left(self._supplies, demand), 1), len(self._supplies) - 1)
        below, above = self._prices[index - 1 : index + 1]
        less, more = self._supplies[index - 1 : index + 1]
        slope = max((more - less) / (above - below), self._supplies[-1] / 2000)
        return max(_PRICE_FLOOR, min(_PRICE_CAP, below + (demand - less) / slope)), slope

    def dispatch(self, price: float, demand: float) -> dict[str, float]:
        """Return the MW per type that meet ``demand``; the dearest type balances what a capped price leaves open."""
        running = self.running(price)
        dearest = max(self._stack, key=lambda kind: COSTS[kind][1])
        running[dearest] = max(0.0, running[dearest] + demand - sum(running.values()))
        return running
