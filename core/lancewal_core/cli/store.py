"""``lancewal store check``: try a bucket or a folder before tables lie in it."""

from __future__ import annotations

from typing import Annotated

import typer

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.options import SettingsAsked
from lancewal_core.cli.output import aligned
from lancewal_core.errors import InvalidInput

app = CommandApp(help="Find out whether a store is fit for tables.")


@app.command()
def check(
    asked: SettingsAsked,
    address: Annotated[
        str,
        typer.Argument(metavar="ADDRESS", help="A bucket, container or folder, such as s3://lake.", show_default=False),
    ],
) -> None:
    """Try all that tables need of a store, in a new folder there, and delete the folder.

    It takes some seconds, some 2,500 requests, and credentials that may read, write, list and delete. Exit code 1 if the store
    breaks a promise.

    Example: lancewal store check s3://lake
    """
    import shutil
    from contextlib import closing
    from uuid import uuid4

    from lancewal_core.process.tasks import ThreadTasks
    from lancewal_core.store.address import local_folder, whole_address
    from lancewal_core.store.obstore import open_store
    from lancewal_core.table.proof.store_check import check_promises

    options = asked.settings().storage.options
    uri = f"{whole_address(address, options).rstrip('/')}/check-{uuid4().hex[:8]}"
    folder = local_folder(uri)
    if folder is not None:
        if not folder.parent.is_dir():
            raise InvalidInput(f"{address} is not a folder of this machine: make it first")
        folder.mkdir()
    try:
        with closing(ThreadTasks()) as tasks:
            promises = check_promises(open_store(uri, options), uri, options, tasks, lambda: uuid4().hex[:8])
    finally:
        if folder is not None:
            shutil.rmtree(folder)
    broken = sum(promise.fault is not None for promise in promises)
    verdict = (
        f"{address}: {broken} of {len(promises)} promises are broken" if broken else f"{address} is fit for tables"
    )
    lines = aligned([("kept" if p.fault is None else "BROKEN", p.text, p.fault or "") for p in promises])
    asked.report(
        {
            "address": address,
            "promises": [{"text": p.text, "kept": p.fault is None, "fault": p.fault} for p in promises],
        },
        "\n".join([*lines, verdict]),
    )
    if broken:
        raise typer.Exit(1)
