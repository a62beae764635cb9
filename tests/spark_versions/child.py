"""The program that reads, in a PySpark of its own: what it found of each read goes to a file, and a line to stdout.

Its argument is JSON: ``table``, an ``empty`` one to load, ``points`` by name, ``conf`` and ``remote`` of the session, and the
``folder`` of results.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.spark_versions import loaded
from tests.spark_versions.reads import LOADED, READS, REFUSED, Read

_OFFERED = "spark.sql.python.filterPushdown.enabled"


def main(asked: dict[str, Any]) -> None:
    import pyspark
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    if asked["remote"]:
        builder = builder.remote(asked["remote"])
    for name, value in asked["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    _say("session", version=pyspark.__version__, kind=type(spark).__module__)
    try:
        for number, read in enumerate(READS):
            _answer(read.name, lambda read=read, number=number: _kept(_read(spark, asked, read), asked, number))  # type: ignore[misc] # called at once
        for name, options, text in REFUSED:
            _answer(name, lambda options=options, text=text: _refused(spark, asked, options, text))  # type: ignore[misc] # called at once
        _answer("a receipt of a DataFrame", lambda: _receipt(spark, asked))
        _answer(LOADED, lambda: _load(spark, asked))
    finally:
        spark.stop()


def _read(spark: Any, asked: dict[str, Any], read: Read) -> pa.Table:
    import lancewal.spark

    options = {name: value.format(**asked["points"]) for name, value in read.options.items()}
    spark.conf.set(_OFFERED, str(read.filters).lower())
    match read.by:
        case "count":
            found = lancewal.spark.count(spark, asked["table"], **options)
            return pa.table({"n": [found]})
        case "schema":
            df = spark.read.format("lancewal").schema("f4 double, region string, id long").options(**options)
            df.load(asked["table"]).createOrReplaceTempView("t")
        case "stream":
            changes = spark.readStream.format("lancewal").options(**options).load(asked["table"])
            kept = changes.writeStream.format("memory").queryName("t")
            kept.trigger(availableNow=True).start().awaitTermination()
        case "view":
            lancewal.spark.view(spark, asked["table"], "t", **options)
    for statement in read.first:
        spark.sql(statement).collect()
    table: pa.Table = spark.sql(read.sql).toArrow()
    return table


def _kept(found: pa.Table, asked: dict[str, Any], number: int) -> str:
    with (
        pa.OSFile(str(Path(asked["folder"]) / f"{number}.arrow"), "wb") as file,
        pa.ipc.new_file(file, found.schema) as to,
    ):
        to.write_table(found)
    return ""


def _refused(spark: Any, asked: dict[str, Any], options: dict[str, str], text: str) -> str:
    try:
        spark.read.format("lancewal").options(**options).load(asked["table"]).schema  # noqa: B018 # Connect plans here
    except Exception as error:
        first = str(error).strip().splitlines()[0]
        return "" if text in first and "hush" not in str(error) else f"said otherwise: {first[:200]}"
    return "not refused"


def _receipt(spark: Any, asked: dict[str, Any]) -> str:
    import lancewal.spark

    df = spark.read.format("lancewal").option("at", asked["points"]["receipt"]).load(asked["table"])
    return "" if str(lancewal.spark.receipt_of(df)) == asked["points"]["receipt"] else "another receipt"


def _load(spark: Any, asked: dict[str, Any]) -> str:
    import lancewal.spark
    from lancewal_core.settings.load import Settings
    from lancewal_core.settings.sections import TableSettings

    settings = Settings(table=TableSettings(uri=asked["empty"]))
    frame = spark.sql(loaded.SQL)
    done = lancewal.spark.load_dataframe(settings, frame, str(Path(asked["folder"]) / "staging"))
    return "" if done.inserted == len(loaded.ROWS) else f"{done.inserted} rows came in"


def _answer(name: str, act: Callable[[], str]) -> None:
    try:
        wrong = act()
    except Exception as error:
        wrong = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    _say(name, wrong=wrong)


def _say(name: str, **fields: Any) -> None:
    print(json.dumps({"name": name, **fields}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
