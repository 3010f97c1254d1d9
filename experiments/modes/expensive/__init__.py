"""Not in the product: ``python -m experiments.modes.expensive`` is ``diem`` with expensive updates."""
