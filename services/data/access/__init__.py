"""Access control: API keys, plans, quotas and usage; write keys (docs/access.md).

Reading order: ``keys`` and ``plans``, ``rights`` (the endpoints of plan and token together), ``quota`` (one key's or
address's limits, pure), ``accounts`` (all quotas, daily units reserved in the store), ``last_use``, ``records`` (their
SQL), ``signing`` and ``tokens`` (client tokens for holders of API keys), ``key_file`` (what verifies them, for edges of
this machine), ``access`` (what the rest of the service calls for readers), ``write_access`` (for writers).
"""
