"""The commands of ``diem`` that learn from traffic or apply what was learnt: one module a group of commands."""
