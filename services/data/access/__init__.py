"""Access control: API keys, plans, quotas and usage; write keys (docs/access.md).

Reading order: ``keys`` and ``plans``, ``rights`` (the endpoints covered by both plan and token), ``quota`` (one key's
or address's limits, pure), ``accounts`` (all quotas, daily units reserved in the store), ``last_use``, ``records``
(their SQL), ``signing`` and ``tokens`` (client tokens for holders of API keys), ``key_file`` (their public keys, for
edges on this machine), ``access`` (the interface for readers), ``write_access`` (for writers).
"""
