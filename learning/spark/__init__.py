"""Spark on this machine: what it needs to run, and the jobs of ``diem pipeline``.

Reading order: ``jars`` (what is downloaded), ``pipeline`` (the jobs, with their progress).
"""
