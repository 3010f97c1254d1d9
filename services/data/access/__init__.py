"""Who may read how much: API keys, their plans, the quotas of the plans, and what was used (docs/access.md)."""
