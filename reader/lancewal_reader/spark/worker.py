"""Which program of PySpark this process is: it runs modules of its own as programs, and forks from them."""

from __future__ import annotations

import sys

_WORKERS = ("pyspark.daemon", "pyspark.worker", "pyspark.sql.worker.")
_PUSHDOWN = "pyspark.sql.worker.data_source_pushdown_filters"


def in_worker() -> bool:
    """Whether it is one at all."""
    return _program().startswith(_WORKERS)


def in_pushdown_worker() -> bool:
    """Whether this is the process in which Spark offers filters; it starts one only where its setting allows them."""
    return _PUSHDOWN in sys.modules or _program() == _PUSHDOWN


def _program() -> str:
    """The module that was started; nothing where none was."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return str(getattr(spec, "name", ""))
