"""A simulated electricity market around Greece: made up, but coherent, and the same for the same seed and time."""

from services.data.sources.market.simulation import Simulation

__all__ = ["Simulation"]
