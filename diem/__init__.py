"""The kernel of all processes: protocols, fan-out, Kafka's topics, client tokens, links, and the life of a process.

Reading order: ``protocol`` and ``fanout``, which are pure; ``process``, ``tokens``, ``kafka``, ``links``; ``traffic``
records subscriptions; ``client`` is the library for Python. Nothing here does I/O at import time.
"""

__version__ = "0.1.0"
