"""The commands of `diem` that make plans, apply them and roll them back."""
