"""The faults of starting a process that its operator can mend; the life cycle turns them into exit codes."""

from diem.errors import DiemError


class ConfigurationError(DiemError):
    """The process cannot start as it is configured: repeating the attempt is pointless (exit code 2)."""
