"""Chooses the partition of every endpoint from what clients subscribe to: few servers each, equally loaded.

Pure computation over numpy arrays; what is large goes through a :class:`~metadata.placement.backend.Backend`.
"""
