"""The root of every error that DIEM raises on purpose."""


class DiemError(Exception):
    """An error that a person or a peer can act upon.

    The text of ``str(error)`` is complete in itself; data is in attributes. It is mapped to an HTTP status, a close
    code or an exit code at the edge of a process, never here.
    """

    retriable: bool = False
    """Whether the same request may succeed later without being changed."""
