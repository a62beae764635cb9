"""The peers that there are, and what each of them needs.  Versions are pinned: figures of others would be others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Engine:
    """``module`` has a function ``open_peer(folder) -> Peer``; ``lock``: a file beside this one, which dev.py writes."""

    name: str
    module: str
    lock: str
    by_spark: bool = True


_SPARK_4_1 = "spark-4.1.lock"
_SPARK_3_5 = "spark-3.5.lock"

ENGINES = {
    engine.name: engine
    for engine in (
        Engine("delta", "benchmarks.peers.delta", _SPARK_4_1),
        Engine("iceberg", "benchmarks.peers.iceberg", _SPARK_4_1),
        Engine("hudi", "benchmarks.peers.hudi", _SPARK_3_5),
        Engine("lance-spark", "benchmarks.peers.lance_spark", _SPARK_3_5),
        Engine("lakesoul", "benchmarks.peers.lakesoul", "lakesoul.lock", by_spark=False),
    )
}
