"""The measured process of ``benchmarks.memory``: the ingest service as in production, until all records are durable."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.memory import CASES
from lancewal_core.settings.load import load_settings
from lancewal_demo.stack.resident_memory import resident_bytes
from lancewal_ingest.service.service import Running, serve
from lancewal_kafka.topic import TopicInspector
from lancewal_tables.define.create import create_table


def main(name: str, servers: str, topic: str, table: str, budget: str) -> None:
    case = CASES[name]
    config = Path(table).with_suffix(".yaml")
    config.write_text(
        f"""
table: {{uri: {table}, topic: {topic},
  columns: {json.dumps(dict(case.columns))}, primary_key: [region, id], region_key: [region]}}
kafka: {{bootstrap_servers: "{servers}"}}
ingest: {{memory_bytes_max: {budget}}}
http: {{ingest_port: 0, flusher_port: 0}}
"""
    )
    settings = load_settings(config, {})
    create_table(settings)
    ends = TopicInspector({"bootstrap.servers": servers}, 60.0).ends(topic, range(case.partitions))
    running: list[Running] = []
    began = time.perf_counter()
    ended = 0.0

    def stop() -> bool:
        nonlocal ended
        worker = running[0].worker if running else None
        durable = {} if worker is None else {r.partition: at for r, at in worker.durable.items()}
        stopped = set() if worker is None else {r.partition for r in worker.stopped}
        done = worker is not None and all(
            durable.get(p, 0) >= min(end, case.enough or end) or p in stopped for p, end in ends.items()
        )
        ended = ended or (time.perf_counter() if done else 0.0)
        return done

    serve(settings, stop, running.append)
    print(json.dumps({"peak_rss_mib": resident_bytes("VmHWM") / 2**20, "seconds": ended - began}))


if __name__ == "__main__":
    main(*sys.argv[1:])
