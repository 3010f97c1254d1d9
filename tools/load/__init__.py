"""``diem load``: many clients of a running system, and whether each of them was sent everything; ``diem canary``.

Reading order: ``preflight`` (what is checked before anything is opened), ``selection`` (which client subscribes to
what), ``delays`` (histogram) and ``completeness`` (what was missed), which are pure; ``client`` (one client and the
counts of all), ``writer`` (updates of endpoints of its own), ``run`` (the phases of a test), ``report`` (text, JSON).
The endless form: ``edges`` (where to watch) and ``lateness`` (what is late), which are pure; ``server_client`` (a
client of an internal listener), ``canary`` (the loop, its lines and metrics).
"""
