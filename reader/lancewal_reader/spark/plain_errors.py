"""Errors that lancewal raises on purpose reach Spark's users as one line: the error's name and its message.

A worker of PySpark sends the traceback of the error that ends it, unless ``SPARK_HIDE_TRACEBACK`` is set (PySpark 4.0
and later).  The worker reads the variable after it has caught the error.  The variable is therefore set at that
moment, and only in a process of PySpark that ends with such an error.  Any other error keeps its traceback, which
shows where it comes from.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lancewal_core.errors import LancewalError

_HIDE = "SPARK_HIDE_TRACEBACK"
_WORKERS = ("pyspark.daemon", "pyspark.worker", "pyspark.sql.worker.")
"""The modules that PySpark runs as programs, and forks from."""


@contextmanager
def plain_errors() -> Iterator[None]:
    try:
        yield
    except LancewalError:
        if _in_worker():
            os.environ[_HIDE] = "1"
        raise


def _in_worker() -> bool:
    """Whether this process is a program of PySpark."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return str(getattr(spec, "name", "")).startswith(_WORKERS)
