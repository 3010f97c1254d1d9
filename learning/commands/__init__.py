"""The commands of ``diem`` that learn from traffic or apply plans: one module per group of commands."""
