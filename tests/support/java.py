"""Java in a process of its own, whose classes a test calls by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import JavaGateway

from lancewal_demo.stack.java import find_java

SPARK_JARS = Path(pyspark.__file__).parent / "jars"


@contextmanager
def java(*jars: Path) -> Iterator[Any]:
    """Yield a Java with the jars in these folders."""
    (py4j,) = SPARK_JARS.glob("py4j-*.jar")
    gateway = JavaGateway.launch_gateway(
        jarpath=str(py4j),
        classpath=os.pathsep.join(f"{folder}/*" for folder in jars),
        java_path=str(find_java().program),
        die_on_exit=True,
        javaopts=["-XX:TieredStopAtLevel=1", "-Xmx512m"],
    )
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
