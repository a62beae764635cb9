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
    spark = (
        builder.master("local[2]")
        .config("spark.jars", ",".join(jars))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.extensions", "org.lance.spark.extensions.LanceSparkSessionExtensions")
        .getOrCreate()
    )
    place = f"{asked['uri']}/tree/{asked['branch']}" if asked["branch"] else asked["uri"]
    try:
        for name in asked["questions"]:
            try:
                found = _answer(spark.read.format("lance").load(place), name, asked)
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
        return bool(len(df.collect()) == asked["rows"])
    return bool(df.filter("a = 77").count() == asked["patched"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
