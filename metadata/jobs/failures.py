"""What an exception of a call to Spark says of its JVM: that it is gone, or what it could not do."""

import errno


def is_loss_of_jvm(error: Exception) -> bool:
    """Whether the JVM is gone, or does not answer any more."""
    from py4j.protocol import Py4JError, Py4JJavaError  # noqa: PLC0415

    # Py4JJavaError is what the JVM itself raised: it lives.
    if isinstance(error, OSError):
        # Those of files are ours: what is wrong with the way to the JVM names none, and is no full disk.
        return error.filename is None and error.errno not in {errno.ENOSPC, errno.EDQUOT}
    return isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)


def said_by_jvm(error: Exception) -> str | None:
    """Return what the JVM raised, in one line; None if it was not the JVM, or a fault of our own functions in tasks."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415
    from pyspark.errors import PySparkException, PythonException  # noqa: PLC0415

    if not isinstance(error, (Py4JJavaError, PySparkException)) or isinstance(error, PythonException):
        return None
    # Before a colon at the begin of a line Py4J says which call it was.
    said = str(error).partition("\n: ")
    return (said[2] or said[0]).partition("\n")[0][:500]
