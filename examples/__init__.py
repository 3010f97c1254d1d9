"""Programs on the public interfaces of DIEM: ``market`` is a type of source, the default of `make run`."""
