"""Common parts of all processes: settings, life cycle, listeners, keys, limits, metrics, logging and the supervisor."""
