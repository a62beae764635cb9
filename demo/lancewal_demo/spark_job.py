"""``python -m lancewal_demo.spark_job TABLE OUTPUT``: a Spark batch job, as a data team would write it.

Reads the table through ``spark.read.format("lancewal")`` while part of it is still in the write-ahead log, and writes the
delays by carrier to OUTPUT, one JSON object a line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(uri: str, output: Path) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("lancewal demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    try:
        flights = spark.read.format("lancewal").load(uri)
        by_carrier = flights.groupBy("carrier").agg(
            f.count("*").alias("flights"),
            f.count_distinct("tailnum").alias("aircraft"),
            f.count_distinct("dest").alias("destinations"),
            f.sum("dep_delay").alias("departure_delay_sum"),
            (f.sum("dep_delay") / f.count("dep_delay")).alias("departure_delay_mean"),
            f.max("dep_delay").alias("departure_delay_max"),
            f.count("arr_delay").alias("arrivals"),
            f.sum("arr_delay").alias("arrival_delay_sum"),
            (f.sum("arr_delay") / f.count("arr_delay")).alias("arrival_delay_mean"),
            f.max("arr_delay").alias("arrival_delay_max"),
            f.sum("air_time").alias("air_minutes"),
            f.sum("distance").alias("miles"),
        )
        rows = [row.asDict() for row in by_carrier.collect()]
    finally:
        spark.stop()
    output.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
