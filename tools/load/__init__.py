"""``diem load``: many clients of a running system, and whether each of them was sent everything.

Reading order: ``preflight`` (what is checked before anything is opened), ``selection`` (which client subscribes to
what), ``delays`` (histogram) and ``completeness`` (what was missed), which are pure; ``client`` (one client and the
counts of all), ``writer`` (updates of endpoints of its own), ``run`` (the phases of a test), ``report`` (text, JSON).
"""
