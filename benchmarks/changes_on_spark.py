"""Measure how soon ``foreachBatch`` of Spark sees changes, beside the barest Python source that streams.

Rows arrive at 10,000 rows/s as in ``freshness``, whose reading process is this module.  It runs two queries in turn.

*The barest source* gives nothing but ready Arrow rows: at 10,000 records/s by the clock, with the columns of the change feed
and two rows a record.  So it takes only what Spark's micro-batches take.  Then *lancewal* streams the changes of the table.
The same services work meanwhile, and both queries do the same with a batch.  A row's age is the time from its produce call
to the end of ``toArrow`` in ``foreachBatch``.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.spark_session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATE = 10_000
WARM_S = 10.0
"""Seconds of each query in which rows do not count yet."""
BAREST_S = 30.0
"""Seconds in which rows of the barest source count."""
_COLUMNS = ("region", "id", "ts", "a")
_SCHEMA = (
    "region string, id long, ts long, a long, _change_type string, _commit_version long, _commit_timestamp timestamp, "
    "_sequence long"
)


class Ages:
    """Age of each record whose row was produced at ``first_us`` or later, in microseconds, and its number ``a``."""

    def __init__(self, first_us: int, until: Callable[[int, int], bool]) -> None:
        """``until``: whether a batch with this highest number and latest produce time, in microseconds, is the last."""
        self._first_us, self._until = first_us, until
        self.ages: list[Any] = []
        self.numbers: list[Any] = []
        self.batches = 0
        self.done = threading.Event()

    def see(self, batch: Any, _: int) -> None:
        import pyarrow.compute as pc

        rows = batch.toArrow()
        now = time.time_ns() // 1000
        if not rows.num_rows:
            return
        self.batches += 1
        rows = rows.filter(pc.not_equal(rows["_change_type"], "update_preimage"))
        produced, number = rows["ts"].to_numpy(), rows["a"].to_numpy()
        count = produced >= self._first_us
        self.ages.append((now - produced)[count])
        self.numbers.append(number[count])
        if self._until(int(number.max()), int(produced.max())):
            self.done.set()

    def figures(self, name: str) -> dict[str, float]:
        import numpy as np

        p50, p99 = np.percentile(np.concatenate(self.ages) / 1000, [50, 99])
        numbers = np.unique(np.concatenate(self.numbers))
        unseen = int(numbers[-1] - numbers[0] + 1 - len(numbers))
        return {
            f"{name}_p50_ms": float(p50),
            f"{name}_p99_ms": float(p99),
            f"{name}_unseen": unseen,
            f"{name}_batches": self.batches,
        }


def run(seconds: int = 100) -> dict[str, float]:
    from benchmarks import freshness

    figures = freshness.run(seconds, "benchmarks.changes_on_spark")
    ratios = {f"spark_{at}_ratio": figures[f"spark_{at}_ms"] / figures[f"barest_{at}_ms"] for at in ("p50", "p99")}
    return {**figures, **ratios}


def main(uri: str, rows: int, timeout_s: float) -> None:
    spark = local_session()
    spark.dataSource.register(barest())
    end = time.monotonic() + timeout_s
    print("ready", flush=True)
    try:
        first_us = round((time.time() + WARM_S) * 1e6)
        last_us = first_us + round(BAREST_S * 1e6)
        ready = Ages(first_us, lambda _, produced_us: produced_us >= last_us)
        _run(spark, ready, "barest", {}, end)
        ours = Ages(round((time.time() + WARM_S) * 1e6), lambda number, _: number >= rows - 1)
        _run(
            spark,
            ours,
            "lancewal",
            {"changes": "net", "start": "now", "table": uri, "columns": ",".join(_COLUMNS)},
            end,
        )
        print(json.dumps(ready.figures("barest") | ours.figures("spark")))
    finally:
        spark.stop()


def _run(spark: SparkSession, ages: Ages, source: str, options: dict[str, str], end: float) -> None:
    """Run a query until it has seen its last row."""
    with tempfile.TemporaryDirectory(prefix="lancewal-benchmark-") as checkpoint:
        stream = spark.readStream.format(source).options(**options).load()
        writer = stream.writeStream.foreachBatch(ages.see).option("checkpointLocation", checkpoint)
        query = writer.start()
        while not ages.done.wait(0.1) and query.isActive and time.monotonic() < end:
            pass
        query.stop()
        failed = query.exception()
        if failed is not None and not ages.done.is_set():
            raise failed


def barest() -> type[Any]:
    """Return the source; PySpark is loaded here."""
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Barest(DataSource, DataSourceStreamReader):
        @classmethod
        def name(cls) -> str:
            return "barest"

        def schema(self) -> str:
            return _SCHEMA

        def streamReader(self, schema: Any) -> Any:  # noqa: N802 # as PySpark has it
            return self

        def initialOffset(self) -> dict[str, int]:  # noqa: N802 # as PySpark has it
            return {"at": int(time.time() * RATE)}

        def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802 # as PySpark has it
            return {"at": int(time.time() * RATE)}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [InputPartition((start["at"], end["at"]))] if end["at"] > start["at"] else []

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            yield ready_rows(*partition.value)

        def commit(self, end: dict[str, int]) -> None:
            pass

        def stop(self) -> None:
            pass

    return Barest


def ready_rows(begin: int, end: int) -> Any:
    """Return the rows of the records with these numbers: two of each, as of an update.

    A record is produced when the clock has reached its number, in parts of 1 / ``RATE`` seconds."""
    import numpy as np
    import pyarrow as pa

    number = np.repeat(np.arange(begin, end), 2)
    count = len(number)
    kinds = pa.DictionaryArray.from_arrays(
        pa.array(np.arange(count, dtype=np.int32) % 2), ["update_preimage", "update_postimage"]
    )
    time_us = pa.repeat(pa.scalar(0, pa.int64()), count).cast(pa.timestamp("us", tz="UTC"))
    ones = pa.array(np.ones(count, np.int64))
    columns = [
        *(pa.repeat(pa.scalar("region-00000"), count), pa.array(number), pa.array(number * (1_000_000 // RATE))),
        *(pa.array(number), kinds.dictionary_decode(), ones, time_us, ones),
    ]
    names = [*_COLUMNS, "_change_type", "_commit_version", "_commit_timestamp", "_sequence"]
    return pa.RecordBatch.from_arrays(columns, names=names)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
    else:
        print(json.dumps(run(), indent=1))
