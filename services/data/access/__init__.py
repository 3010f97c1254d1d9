"""Access control: API keys, plans, quotas and usage (docs/access.md)."""
