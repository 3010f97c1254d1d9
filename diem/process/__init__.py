"""One process: settings, life cycle, logs, metrics, keys, limits, and the supervision of other processes.

Reading order: ``settings``, ``lifecycle``, ``listeners``, ``auth``, ``limits``; ``supervisor`` with ``backoff`` for
processes that start others.
"""
