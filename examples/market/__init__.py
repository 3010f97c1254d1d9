"""A simulated electricity market around Greece: invented but coherent, and reproducible by seed and time."""

from examples.market.simulation import Simulation

__all__ = ["Simulation"]
