"""The kernel: what every DIEM process shares. Nothing here does I/O at import time."""

__version__ = "0.1.0"
