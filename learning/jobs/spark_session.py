"""A Spark session: its driver in this process's own JVM, with bounded memory and leftovers in a scratch folder.

Without a cluster, everything runs in this JVM, on loopback only.
"""

import contextlib
import errno
import fcntl
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException, PySparkRuntimeError, PythonException
from pyspark.sql import SparkSession

from diem.errors import DiemError
from learning.jobs.spark_options import (
    LOOPBACK,
    SparkOptions,
    configuration,
    is_local,
    read_defaults,
    settings_for_size,
)

HOME: Final = Path(pyspark.__path__[0])
"""Folder of PySpark."""


def is_jvm_loss(error: Exception) -> bool:
    """Return whether ``error`` means that the JVM is gone or unresponsive."""
    # Py4JJavaError is raised by the JVM itself, so it is alive.
    if isinstance(error, OSError):
        # Errors of our files name a file or are a full disk; a broken connection to the JVM is neither.
        return error.filename is None and error.errno not in {errno.ENOSPC, errno.EDQUOT}
    return isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)


def jvm_error(error: Exception) -> str | None:
    """Return the JVM's error in one line; None for errors of other origin, including our functions in tasks."""
    if not isinstance(error, (Py4JJavaError, PySparkException)) or isinstance(error, PythonException):
        return None
    # The first cause says what a person can correct; errors of Spark's own have it as an attribute.
    while isinstance(cause := getattr(error, "_cause", None), PySparkException):
        error = cause
    # Py4J puts the failed call before a line that begins with a colon, and a stack after it.
    text = str(error).partition("\n: ")
    lines = _CAUSE.findall(text[2]) or [(text[2] or text[0]).partition("\n")[0]]
    return _JAVA_CLASS.sub("", lines[-1])[:500]


_CAUSE: Final = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_JAVA_CLASS: Final = re.compile(r"^(?:\w+\.)+[\w$]+: ")


_LOG4J: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""


@dataclass(eq=False)
class SparkFailed(DiemError):
    """The JVM did not start, died, or failed a job."""

    retriable = True

    what: str
    log: Path | None = None

    def __str__(self) -> str:
        """Return the text."""
        return f"{self.what}{f' (its log: {self.log})' if self.log else ''}"


def spark_session(options: SparkOptions, launched: Callable[[], None] = lambda: None) -> SparkSession:
    """Start the JVM, or return the running session (whatever its options). Takes about 4 s.

    Not thread-safe: during the start it changes this process's working directory, environment and standard error,
    inherited by the JVM.

    Args:
        options: those of the session.
        launched: called when the JVM runs, with standard error as before; executors are waited for then.

    Raises:
        SparkFailed: the JVM does not start.
    """
    if (running := SparkSession.getActiveSession()) is not None:
        return running
    options.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    options.log_configuration.write_text(_LOG4J.format(file=options.log), encoding="utf-8")
    settings = configuration(options, given_settings())
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with _jvm_environment(options, local=is_local(settings["spark.master"])):
            with _standard_error_to(options.scratch / "jvm.log"):
                conf = pyspark.SparkConf().setAll(list(settings.items()))
                pyspark.SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001  # starts the JVM alone
            launched()
            with _own_interrupt():
                return builder.getOrCreate()
    except (PySparkRuntimeError, OSError) as error:
        raise SparkFailed(f"Spark's JVM did not start: {str(error).splitlines()[0]}", options.log) from error
    except Exception as error:
        # The JVM is up, but the cluster is not, or has no executor for us.
        if (text := jvm_error(error)) is None:
            raise
        raise SparkFailed(f"Spark did not start at {settings['spark.master']}: {text}") from error


def given_settings() -> dict[str, str]:
    """Return the settings of the operator's ``spark-submit``, if running this process, else of ``spark-defaults.conf``.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        pyspark.SparkContext._ensure_initialized()  # noqa: SLF001  # connects to the JVM that runs already
        return dict(pyspark.SparkConf().getAll())
    home = os.environ.get("SPARK_HOME") or HOME
    return read_defaults(Path(os.environ.get("SPARK_CONF_DIR") or f"{home}/conf"))


def adapt_to_size(spark: SparkSession, size: int) -> None:
    """Let shuffles have as many partitions as their input needs, unless the operator has set a number.

    Args:
        spark: the session.
        size: of the input, in bytes.
    """
    given = spark.sparkContext.getConf()
    for name, value in settings_for_size(size, spark.sparkContext.defaultParallelism).items():
        if given.get(name) is None:
            spark.conf.set(name, value)


@contextlib.contextmanager
def open_spark(options: SparkOptions, launched: Callable[[], None] = lambda: None) -> Iterator[SparkSession]:
    """Start a session and stop it at the end; see :func:`spark_session`.

    Raises:
        SparkFailed: the JVM died, or failed a job.
    """
    # Py4J also logs what it raises, partly to the root logger; after the JVM's death even while this process exits and
    # proxies of Java objects are finalised.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_ours)
    spark = spark_session(options, launched)
    # So does the accumulators' thread, the first to notice the JVM's end.
    spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]  # noqa: SLF001
    try:
        yield spark
    except Exception as error:
        if is_jvm_loss(error):
            raise SparkFailed("Spark's JVM died: run it again, nothing is lost or counted twice") from error
        if (text := jvm_error(error)) is not None:
            raise SparkFailed(f"Spark failed: {text}") from error
        raise
    finally:
        # The JVM may be dead, or an interrupted call may have left its connection unusable.
        with contextlib.suppress(Exception):
            spark.stop()


def end_jvm() -> bool:
    """Wait for the end of the JVM of a stopped session; return whether it has ended well.

    Otherwise it ends after this process: a new archive of classes takes it some seconds more.
    """
    context = pyspark.SparkContext
    gateway, context._gateway, context._jvm = context._gateway, None, None  # noqa: SLF001  # another JVM may follow
    if gateway is None or (process := gateway.proc) is None:
        return False
    gateway.shutdown()
    try:
        process.communicate(timeout=_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
    return bool(process.wait() == 0)


_END_TIMEOUT_S: Final = 120.0


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Keep the handler of Ctrl-C: PySpark's calls the JVM, in the middle of another call by the same connection."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _is_ours(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


@contextlib.contextmanager
def _jvm_environment(options: SparkOptions, *, local: bool) -> Iterator[None]:
    """Set up the JVM's environment: Spark puts ``artifacts`` in its working directory."""
    given = {"PYSPARK_PYTHON": sys.executable}
    if local:
        given["SPARK_LOCAL_IP"] = LOOPBACK
    else:
        # Workers may have their Python elsewhere, as set by the operator.
        given |= {name: os.environ[name] for name in given if name in os.environ}
    if options.java is not None:
        given["JAVA_HOME"] = str(options.java.resolve().parents[1])
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        with contextlib.chdir(options.scratch):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _standard_error_to(file: Path) -> Iterator[None]:
    """Let a process that is started have a file as standard error: Spark prints a banner there."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with file.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


_PREFIX: Final = "diem-spark-"
_LOCK: Final = "lock"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Provide a temporary folder; first remove those left behind by killed processes."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name, _lock_folder(Path(name)):
        yield Path(name)


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder for the life of this process."""
    new = folder / f"{_LOCK}.new"
    with new.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Renamed once locked, so that it is never unlocked under its final name.
        new.rename(folder / _LOCK)
        yield


def _remove_abandoned(temporary: Path) -> None:
    for lock in temporary.glob(f"{_PREFIX}*/{_LOCK}"):
        # OSError: another user's folder, or one just removed by another process.
        with suppress(OSError):
            _remove_unless_locked(lock)


def _remove_unless_locked(lock: Path) -> None:
    # Anyone can create such folders in the shared temporary directory: follow no links, remove only our own.
    file = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        folder = lock.parent
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(file)
