"""Errors that lancewal raises on purpose reach Spark's users as one line: the error's name and its message.

A worker of PySpark sends the traceback of whatever it dies of, unless ``SPARK_HIDE_TRACEBACK`` is set (PySpark 4.0 and later);
it reads that when it has caught the error.  So it is set then, in a process of PySpark that ends with this error, and for no
other error: what is none of ours shows where it comes from.
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
