"""The kernel, shared by all DIEM processes. Nothing here does I/O at import time."""

__version__ = "0.1.0"
