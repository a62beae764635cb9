"""The module that Spark finds by itself: ``spark.read.format("lancewal")``.

Spark imports every top-level module named ``pyspark_*`` when it looks for data sources, also in jobs that never use
this one.  Therefore nothing here loads Lance before a table is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceWriter
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The Spark data source ``lancewal`` (``lancewal_reader.spark.source``; for changes ``spark.feeds``).

    Spark creates an object of this class on the driver for each ``load()``.  The DataFrame shows the table version
    and the WAL positions of that moment, however often it is used.
    """

    @classmethod
    def name(cls) -> str:
        return "lancewal"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        from lancewal_reader.spark.feeds.pinned import pin
        from lancewal_reader.spark.plain_errors import plain_errors

        with plain_errors():
            self._pinned = pin(options)

    def schema(self) -> StructType:
        return self._pinned.schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        from lancewal_reader.spark.plain_errors import plain_errors

        with plain_errors():
            return self._pinned.reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 # as PySpark has it
        from lancewal_reader.spark.plain_errors import plain_errors

        with plain_errors():
            return self._pinned.stream_reader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from lancewal_core.errors import InvalidInput
        from lancewal_reader.spark.plain_errors import plain_errors

        with plain_errors():
            raise InvalidInput(
                "Spark only reads this format: records come through the table's topic, rows in bulk by `lancewal table load`"
            )
