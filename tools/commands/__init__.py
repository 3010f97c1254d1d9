"""The commands of ``diem`` that look at a system from outside or prepare one: one module a group of commands."""
