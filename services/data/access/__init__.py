"""Access control: API keys, plans, quotas and usage (docs/access.md).

Reading order: ``keys`` and ``plans``, ``quota`` (one key's or address's limits, pure), ``accounts`` (all quotas, daily
units reserved in the store), ``records`` (their SQL), ``access`` (what the rest of the service calls).
"""
