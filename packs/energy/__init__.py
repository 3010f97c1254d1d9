"""The electricity market: quantities with their units, and a simulated market as a type of source.

Entry points: ``diem.quantities``, ``diem.sources`` and ``diem.defaults``. Reading order: ``quantities`` and
``measures`` (conversion of units), ``model``, ``simulation``.
"""

from pathlib import Path
from typing import Final

from packs.energy.simulation import Simulation

__all__ = ["DEFAULT_CONFIG", "Simulation"]

DEFAULT_CONFIG: Final = Path(__file__).with_name("default.toml")
"""Configuration of a Data Service without a file: the simulated market."""
