"""``make bench-modes``: the scaling modes under the same traces, against what the cost model predicted before.

Reading order: ``plan`` (which runs), ``compare`` (predictions, the fit, errors and goals; pure), ``runs`` (one run,
kept in a file so that a comparison can go on), ``capacity`` (the knee of one server), ``peers`` (other servers on the
same trace; ``peer_ws.mjs`` is one), ``page`` (the report) and ``__main__``. ``expensive`` is ``diem`` with expensive
updates.
"""
