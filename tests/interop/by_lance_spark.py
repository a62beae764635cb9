"""Answers questions about a table by Lance's connector for Spark, in an environment without lancewal.

Its argument is JSON (``made.Made``).  A branch is read by its folder, ``tree/<name>`` below the table's: no option of the
connector names one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def main(asked: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    jars = sorted(map(str, Path(os.environ["BENCHMARK_PEERS_JARS"]).glob("*.jar")))
    builder: Any = SparkSession.builder
    builder = (
        builder.master("local[2]")
        .config("spark.jars", ",".join(jars))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.extensions", "org.lance.spark.extensions.LanceSparkSessionExtensions")
    )
    if asked["namespace"]:
        kind, properties = asked["namespace"]
        builder = builder.config("spark.sql.catalog.lake", "org.lance.spark.LanceNamespaceSparkCatalog")
        builder = builder.config("spark.sql.catalog.lake.impl", kind)
        for key, value in properties.items():
            builder = builder.config(f"spark.sql.catalog.lake.{key}", value)
    spark = builder.getOrCreate()
    place = f"{asked['uri']}/tree/{asked['branch']}" if asked["branch"] else asked["uri"]
    try:
        for name in asked["questions"]:
            try:
                if name == "list":
                    tables = sorted(row.tableName for row in spark.sql("SHOW TABLES IN lake").collect())
                    found = tables == asked["names"] and not spark.sql("SHOW NAMESPACES IN lake").collect()
                else:
                    opened = spark.table(f"lake.`{asked['name']}`") if asked["namespace"] else None
                    found = _answer(opened or spark.read.format("lance").load(place), name, asked)
                print(json.dumps([name, "right" if found else "WRONG"]))
            except BaseException as error:
                print(
                    json.dumps([name, f"{type(error).__name__}: {' '.join(str(error).split())[:90]}".replace("|", "/")])
                )
            sys.stdout.flush()
    finally:
        spark.stop()


def _answer(df: Any, name: str, asked: dict[str, Any]) -> bool:
    if name == "count":
        return bool(df.count() == asked["rows"])
    if name == "two columns":
        return bool(
            tuple(df.selectExpr("count(id)", "sum(cast(a AS decimal(38, 0)))").first()) == (asked["rows"], asked["a"])
        )
    if name == "all columns":
        rows = df.collect()
        if asked["expected"]:
            return bool(sorted(map(list, rows)) == json.loads(Path(asked["expected"]).read_text()))
        return bool(len(rows) == asked["rows"])
    return bool(df.filter("a = 77").count() == asked["patched"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
