"""``diem load``: many clients of a running system, and a check that each was sent everything; ``diem canary``.

Reading order: ``preflight`` (checks before anything is opened), ``selection`` (the clients' subscriptions), ``delays``
(histogram) and ``completeness`` (missed updates), which are pure; ``client`` (one client and the counts of all),
``writer`` (updates of endpoints of its own), ``run`` (the phases of a test), ``report`` (text, JSON). The endless form:
``edges`` (the watched ones) and ``lateness`` (late writes), which are pure; ``server_client`` (a client of an internal
listener), ``canary`` (the loop, its lines and metrics).
"""
