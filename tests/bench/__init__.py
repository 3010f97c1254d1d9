"""Benchmarks: what the design promises about cost, measured against peers in one run (docs/performance.md)."""
