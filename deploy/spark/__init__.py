"""The installation that Spark runs with on this machine.

Reading order: ``jars`` (what is downloaded), ``pipeline`` (the jobs of `diem pipeline`).
"""
