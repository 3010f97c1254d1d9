"""What every process shares: settings, life cycle, listeners, keys, limits, metrics, logging and the supervisor."""
