"""The Spark session of the flusher, classic or Connect, as the environment says.

``spark-submit``, ``spark-defaults.conf`` and ``SPARK_REMOTE`` say where Spark runs, as for any Spark program;
lancewal has no settings of its own for it.

A classic session must be started before Lance is imported.  PySpark starts its Java process by a fork, which is not
safe once Lance's threads run.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lancewal_core.errors import InvalidSettings, SparkJobFailed, SparkStopped
from lancewal_core.process.library_errors import first_line
from lancewal_flusher.event_table import FlusherEvents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXTRA = "install lancewal[flusher,spark] where the flusher runs and in the Python of every executor"


@contextmanager
def spark_session() -> Iterator[None]:
    """Keep a Spark session while a command runs.

    An error of stopping the session is only logged.  If the session has died, the command raises an error of its own,
    which must not be hidden.
    """
    session = the_session()
    try:
        yield
    finally:
        try:
            session.stop()
        except spark_errors() as error:
            FlusherEvents().spark_ended(error=first_line(error))


def the_session() -> SparkSession:
    """Return the session of this process.  Start one if there is none.

    Raises ``InvalidSettings`` if PySpark is missing, or if Java or Spark refuses its configuration.  Raises
    ``SparkStopped`` if the Java process has died.  Raises ``SparkJobFailed`` if Spark Connect cannot be reached.
    """
    from lancewal_reader.spark.installed import check_pyspark, missing_java

    check_pyspark()
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidSettings(f"flusher.runner is spark, and pyspark cannot be loaded ({error}): {_EXTRA}") from error
    try:
        return SparkSession.builder.getOrCreate()
    except ImportError as error:  # what Connect needs beside pyspark
        raise InvalidSettings(f"Spark Connect cannot be loaded ({first_line(error)}): {_EXTRA}") from error
    except spark_errors() as error:
        if os.environ.get("SPARK_REMOTE"):
            raise SparkJobFailed(f"the Spark Connect server cannot be reached: {first_line(error)}") from error
        if _java_has_died(error):
            raise SparkStopped(
                f"the Java process of Spark has died: {first_line(error)}. See the log above (memory?), and start again"
            ) from error
        cause = missing_java() or f"{first_line(error)}; see Spark's log above"
        raise InvalidSettings(f"no Spark session can be started: {cause}") from error


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the types of errors that PySpark raises: its own, and those of its connection to the Java process."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError, ConnectionError


def _java_has_died(error: Exception) -> bool:
    """Whether no session could be started because the Java process was killed or has died.  False if it ended with an
    error of its own.
    """
    from pyspark import SparkContext
    from pyspark.errors import PySparkException

    if isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED":
        code = _exit_code(error)
        return code is not None and (code < 0 or code > 128)  # by a signal; Spark's script says it as a shell does
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return not isinstance(error, PySparkException)
    try:
        gateway.jvm.java.lang.System.nanoTime()
    except spark_errors():
        return True
    return False


def _exit_code(error: BaseException) -> int | None:
    """Return the exit code of the Java process that PySpark tried to start.  It is found only in a stack frame of
    PySpark.
    """
    trace = error.__traceback__
    while trace is not None:
        process = trace.tb_frame.f_locals.get("proc")
        if isinstance(process, subprocess.Popen):
            return process.poll()
        trace = trace.tb_next
    return None


def is_remote(session: SparkSession) -> bool:
    """Whether this is a session of Spark Connect."""
    from pyspark.sql import SparkSession

    return not isinstance(session, SparkSession)


def is_stopped(session: SparkSession) -> bool:
    """Whether the context of a classic session, or its Java process, has ended."""
    context: Any = session.sparkContext
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except spark_errors():
        return True
