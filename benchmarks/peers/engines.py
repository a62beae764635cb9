"""The peers, with the packages and versions that each needs.  Versions are pinned, because others have other figures.

After a change of a ``package`` run ``python3 dev.py lock``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Engine:
    """``module`` has a function ``open_peer(folder) -> Peer``; ``lock``: a file beside this one, which dev.py writes, as it
    does ``<name>-jars.lock`` of the Maven ``package``."""

    name: str
    module: str
    lock: str
    package: str = ""
    reads_lance: bool = False
    """It reads Lance data sets that others wrote."""

    @property
    def by_spark(self) -> bool:
        return bool(self.package)


_SPARK_4_1 = "spark-4.1.lock"
_SPARK_3_5 = "spark-3.5.lock"

ENGINES = {
    engine.name: engine
    for engine in (
        Engine("delta", "benchmarks.peers.delta", _SPARK_4_1, "io.delta:delta-spark_4.1_2.13:4.4.0"),
        Engine(
            "iceberg",
            "benchmarks.peers.iceberg",
            _SPARK_4_1,
            "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        ),
        Engine("hudi", "benchmarks.peers.hudi", _SPARK_3_5, "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"),
        Engine("lance-spark", "benchmarks.peers.lance_spark", _SPARK_3_5, "org.lance:lance-spark-3.5_2.12:0.4.0", True),
        Engine("lakesoul", "benchmarks.peers.lakesoul", "lakesoul.lock"),
    )
}
