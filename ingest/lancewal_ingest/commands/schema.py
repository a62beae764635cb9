"""``lancewal schema accept``: a decision that only a person may take about a schema of a registry."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.named import record_named
from lancewal_core.cli.options import Asked, DryRunOption
from lancewal_core.cli.output import aligned, one_line
from lancewal_core.errors import InvalidInput

if TYPE_CHECKING:
    from lancewal_core.names.ids import Position, Region
    from lancewal_ingest.commands.operator.accept_schema import AcceptedSchema

app = CommandApp(help="Decide about schemas of a registry that the table has stored.")


@app.command()
def accept(
    asked: Asked,
    schema: Annotated[
        str, typer.Argument(help="The schema: its number in the registry, or its GUID.", metavar="SCHEMA")
    ],
    from_: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            help="The first record of its partition under the new schema. Records before it are read by the stored one. May "
            "be repeated; in other partitions all records that are not durable yet are read by the new one.",
            metavar="RECORD",
        ),
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Read records by the schema that the registry has now, although the table has stored another one for that number,
    or that it is unknown.

    Rows that are durable stay as they are. Running ingest takes this up within seconds, and partitions that had
    stopped for the schema go on. If record keys name the schema, you say so that keys keep their partitions. --dry-run
    makes the same checks, and shows both schemas. JSON has `schema`, `version` (of the stored schema),
    `contract_version`, `since` (by partition) and `dry_run`. `before` and `after` are the texts of the schemas;
    `before` is null if it was unknown.

    Example: lancewal schema accept 7 --from orders-3-1841
    """
    from lancewal_core.names.ids import Position, SchemaKey
    from lancewal_core.names.words import SCHEMA_KEY_FORM, schema_key_of
    from lancewal_core.process.clock import SystemClock
    from lancewal_core.process.tasks import ThreadTasks
    from lancewal_ingest.commands.operator.accept_schema import accept_schema
    from lancewal_ingest.context import open_context
    from lancewal_ingest.registry.confluent import ConfluentRegistry

    settings = asked.settings()
    settings.need("table.uri")
    named = schema_key_of(schema)
    if named is None:
        raise InvalidInput(
            f"{schema[:80]!a} is not a schema: expected a number from 1 to 2^32-1, a GUID, or {SCHEMA_KEY_FORM}"
        )
    with closing(ThreadTasks(workers=1)) as tasks:
        context = open_context(settings, tasks, SystemClock())
        settings.need("registry.url")
        regions, found = context.contract.regions, (record_named(text, context.contract) for text in from_ or ())
        since = {regions[partition]: Position(offset) for partition, offset in found}
        if len(since) < len(from_ or ()):
            raise InvalidInput(
                "--from names two records of one partition. Give only the first one under the new schema"
            )
        registry = ConfluentRegistry(settings.registry)
        accepted = accept_schema(context, registry, SchemaKey(named), since, look_only=dry_run)
    content = {
        "schema": named,
        "version": accepted.version,
        "contract_version": accepted.contract.version,
        "since": {str(region.partition): int(at) for region, at in since.items()},
        "before": None if accepted.before is None else accepted.before.text,
        "after": accepted.after.text,
        "dry_run": dry_run,
    }
    asked.report(content, accepted_text(named, accepted, since, dry_run=dry_run), dry_run=dry_run)


def accepted_text(named: str, accepted: AcceptedSchema, since: Mapping[Region, Position], *, dry_run: bool) -> str:
    """Return the command's output about an accepted schema: the first records that use it, and the texts of both
    schemas.
    """
    counts = "would count" if dry_run else "counts"
    before = "unknown" if accepted.before is None else one_line(accepted.before.text)
    first = [f"{region.topic}-{region.partition}-{at}" for region, at in since.items()]
    others = f"from {', '.join(first)} on, and in other partitions for" if first else "for"
    return "\n".join(
        [
            f"{named}: version {accepted.version} of the stored schema {counts} {others} all records that are not durable yet",
            *aligned([("stored", before), ("registry", one_line(accepted.after.text))]),
        ]
    )
