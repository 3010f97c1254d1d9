"""Pure: what travels between the processes, as data and bytes. No I/O, no clocks."""
