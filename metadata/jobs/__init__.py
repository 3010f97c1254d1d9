"""The data pipeline (docs/traffic.md). PySpark is imported by these modules only, and only when work is done."""
