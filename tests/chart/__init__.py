"""Checks of the Helm chart with Go's tools: ``make chart``. Reading order: ``cases``, ``schemas``, ``api_server``."""
