"""``lancewal ingest run``."""

from __future__ import annotations

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.options import TableAsked

app = CommandApp(help="Consume Kafka and make rows durable.")


@app.command()
def run(asked: TableAsked) -> None:
    """Run the ingest service until SIGTERM or SIGINT.

    Needs `table.uri` and `kafka.bootstrap_servers`.  The table's definition is in its contract, and all other settings
    have defaults.  Exit codes: 0 after an orderly end, 2 if a person must change something, 3 if a restart may help.

    Example: lancewal ingest run -c lancewal.yaml
    """
    from lancewal_ingest.glibc_heap import use_one_heap

    use_one_heap()  # before the import of PyArrow, which the service needs
    from lancewal_ingest.service.service import run_ingest

    run_ingest(asked.settings(find="none"), asked.settings)
