"""DIEM and the servers of others on the same work, by one load client (``make bench-peers``).

Reading order: ``contenders`` (what every system is asked for), ``diem`` and ``others`` (the systems), ``uws`` (one of
the others, a script), ``clients`` (groups of connections), ``session`` (what is measured), ``page`` and ``__main__``.
"""
