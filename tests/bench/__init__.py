"""Benchmarks of the costs that the design promises, relative to peers in the same run (docs/performance.md)."""
