"""The Spark session of benchmarks: local, with two cores; Spark and Python communicate by a Unix socket instead of TCP."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2


def local_session() -> SparkSession:
    """Before Lance is loaded: Spark's Java process is started by a fork."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    return builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
