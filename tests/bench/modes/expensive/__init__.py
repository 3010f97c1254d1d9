"""Not in the product: ``python -m tests.bench.modes.expensive`` is ``diem`` with expensive updates."""
