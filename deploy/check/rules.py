"""The table of all rules, in the order of the report."""

from typing import Final

from deploy.check import beside, clients, log, now, partitions, safety, security

TABLE: Final = (
    ("Now", now.RULES),
    ("Message safety", safety.RULES),
    ("Log", (*log.RULES, *beside.RULES)),
    ("Partitions", partitions.RULES),
    ("Clients", clients.RULES),
    ("Security", security.RULES),
)
