"""The bidding zones of the simulation: size, power plants and borders, in the order of magnitude of the real ones."""

from dataclasses import dataclass
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

The ranges leave no gap between the renewable types and the others: where nothing reacts to the price, trade between
zones would not settle.
"""

AVAILABLE: Final = {"nuclear": 0.94, "biomass": 0.75, "hydro": 0.52, "lignite": 0.72, "coal": 0.8, "gas": 0.9,
                    "oil": 0.92}  # fmt: skip
"""The share of the installed power of a type that can run at all; of hydro, what the water allows."""
