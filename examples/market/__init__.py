"""A type of source: a simulated electricity market around Greece, coherent, and reproducible by seed and time."""

from examples.market.simulation import Simulation

__all__ = ["Simulation"]
