"""Spark on this machine: its requirements, and the jobs of ``diem pipeline``.

Reading order: ``jars`` (the downloads), ``pipeline`` (the jobs, with their progress).
"""
