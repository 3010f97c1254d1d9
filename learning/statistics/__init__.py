"""Statistics of a window of traffic (docs/traffic.md section 3), without Spark.

Reading order: ``window`` and ``constants``, ``model`` (rows of the tables), ``parsing`` (one recorded line), and
``reference`` (the statistics themselves, which :mod:`learning.jobs.statistics` computes in Spark).
"""
