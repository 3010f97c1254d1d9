"""``diem canary``: endpoints that are written every few seconds and watched at every server and proxy.

Reading order: ``edges`` (where to watch), ``lateness`` (what is late), which are pure; ``watchers`` (one connection to
an edge), ``writer``, ``run`` (the loop, its lines and metrics).
"""
