"""Public names for programs on Spark.  Importing this module does not load Lance: ``session`` must run before that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lancewal._lazy import names_of

if TYPE_CHECKING:
    from lancewal_flusher.tasks.spark_session import the_session as session
    from lancewal_reader.spark.session_reads import count, view
    from lancewal_reader.spark.source import receipt_of_dataframe as receipt_of
    from lancewal_tables.load.dataframe import load_dataframe

__all__ = ["count", "load_dataframe", "receipt_of", "session", "view"]

_load, __dir__ = names_of(
    __name__,
    {
        "count": "lancewal_reader.spark.session_reads:count",
        "load_dataframe": "lancewal_tables.load.dataframe:load_dataframe",
        "receipt_of": "lancewal_reader.spark.source:receipt_of_dataframe",
        "session": "lancewal_flusher.tasks.spark_session:the_session",
        "view": "lancewal_reader.spark.session_reads:view",
    },
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        from lancewal_reader.spark.installed import check_pyspark

        check_pyspark()
    return _load(name)
