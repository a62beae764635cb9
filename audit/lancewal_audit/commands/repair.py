"""``lancewal repair``: mend what services stop at, after a look with ``--dry-run``."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from lancewal_core.cli.groups import Group
from lancewal_core.cli.named import PartitionArgument, partition_named
from lancewal_core.cli.options import (
    ConfigOption,
    DryRunOption,
    StorageOption,
    TableOption,
    YesOption,
    agree,
    read_settings,
)
from lancewal_core.cli.output import one_line, say

app = Group(help="Mend a table's state. Each command shows with --dry-run what it would do, and changes nothing.")


class RowsSince(StrEnum):
    """What becomes of the rows that were merged after the version that was restored."""

    DROP = "drop"
    REPLAY = "replay"


@app.command()
def generation(
    partition: PartitionArgument,
    number: Annotated[
        int | None,
        typer.Argument(
            metavar="GENERATION", help="Rebuild this one, whatever it looks like; by default what is damaged.", min=1
        ),
    ] = None,
    dry_run: DryRunOption = False,
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Make the flushes of a partition's unmerged generations anew from their WAL entries.

    Example: lancewal repair generation orders-3 --dry-run
    """
    from lancewal_audit.repair.context import opened
    from lancewal_audit.repair.snapshot import plan_snapshots, repair_snapshots
    from lancewal_core.ids import Generation

    with opened(read_settings(config, table, storage_option)) as context:
        named = None if number is None else Generation(number)
        plan = plan_snapshots(context, context.contract.regions[partition_named(partition, context.contract)], named)
        _tell(plan.lines())
        if not dry_run:
            _tell(repair_snapshots(context, plan))


@app.command("region")
def region_(
    partition: PartitionArgument,
    before_gap: Annotated[
        bool,
        typer.Option("--before-gap", help="End the partition before offsets that no log has; Kafka must have them."),
    ] = False,
    version_seen: Annotated[
        int, typer.Option(help="A version that was there, as a log line names it: lost, if it is no more.", min=0)
    ] = 0,
    dry_run: DryRunOption = False,
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Rebuild the state of a partition, whose newest versions are lost or damaged, from the logs.

    Ingest must be stopped and paused, the flusher paused.

    Example: lancewal repair region orders-3 --dry-run
    """
    from lancewal_audit.repair.context import opened
    from lancewal_audit.repair.index.repair import plan_index, repair_index
    from lancewal_audit.repair.topic_records import KafkaTopicRecords
    from lancewal_core.ids import Position
    from lancewal_kafka.topic import TopicInspector

    settings = read_settings(config, table, storage_option)
    with opened(settings) as context:
        region = context.contract.regions[partition_named(partition, context.contract)]

        def low() -> Position:
            settings.need("kafka.bootstrap_servers")
            return KafkaTopicRecords(settings.kafka, context.contract).low(region.partition)

        _tell(plan_index(context, region, low, before_gap=before_gap, above=version_seen).lines())
        if not dry_run:
            settings.need("kafka.bootstrap_servers")
            inspector = TopicInspector(settings.kafka.client())
            group = settings.kafka.group(context.contract.table_uuid)

            def members() -> int:
                return len(inspector.members(region.topic, group))

            _tell(repair_index(context, region, members, low, before_gap=before_gap, above=version_seen))


@app.command()
def segment(
    key: Annotated[str, typer.Argument(metavar="OBJECT", help="The object's key, as the message names it.")],
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Go on without what Kafka does not have any more, and record what it was."),
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Read from Kafka again what a lost or damaged WAL segment held, and flush the generations that need it.

    Example: lancewal repair segment _lancewal/wal/LOG/NUMBER.arrow --dry-run
    """
    from lancewal_audit.repair.context import opened
    from lancewal_audit.repair.segment import plan_segment, repair_segment
    from lancewal_audit.repair.topic_records import KafkaTopicRecords

    settings = read_settings(config, table, storage_option)
    settings.need("kafka.bootstrap_servers")
    with opened(settings) as context:
        records = KafkaTopicRecords(settings.kafka, context.contract)
        plan = plan_segment(context, records, key, accept_loss=accept_loss)
        _tell(plan.lines())
        if not dry_run:
            if any(generation.given_up for generation in plan.needed):
                agree(yes, "these records are given up")
            _tell(repair_segment(context, records, plan))


@app.command()
def restored(
    rows_since: Annotated[
        RowsSince,
        typer.Option(help="What becomes of rows that were merged since: drop, or replay, which merges them again."),
    ],
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Decide what becomes of the rows that were merged since, after a user restored the Lance table.

    Example: lancewal repair restored --rows-since replay --dry-run
    """
    from lancewal_audit.repair.context import opened
    from lancewal_audit.repair.restored import plan_restored, repair_restored

    with opened(read_settings(config, table, storage_option)) as context:
        plan = plan_restored(context, rows_since.value)
        _tell(plan.lines())
        if not dry_run:
            if plan.records:
                agree(yes, f"the restore is decided: {rows_since}")
            _tell(repair_restored(context, plan))


@app.command("merged-position")
def merged_position(
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Conclude what is merged, where the table versions that said it are gone, and record it.

    Example: lancewal repair merged-position --dry-run
    """
    from lancewal_audit.repair.context import opened
    from lancewal_audit.repair.watermark import accept_watermark, plan_watermark

    with opened(read_settings(config, table, storage_option)) as context:
        plan = plan_watermark(context)
        if plan is None:
            _tell(["what is merged is known: nothing to do"])
            return
        _tell(plan.lines())
        if not dry_run:
            agree(yes, "this is taken for what is merged")
            _tell(accept_watermark(context, plan))


@app.command()
def index(
    name: Annotated[str, typer.Argument(help="The index, as `lancewal verify --indexes` and Lance name it.")],
    dry_run: DryRunOption = False,
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Build a secondary index of the Lance table anew, with its own parameters.  No row changes.

    Example: lancewal repair index customer_idx --dry-run
    """
    from lancewal_audit.repair.context import opened
    from lancewal_audit.repair.lance_index import plan_lance_index, repair_lance_index

    with opened(read_settings(config, table, storage_option)) as context:
        plan = plan_lance_index(context, name)
        _tell(plan.lines())
        if not dry_run:
            _tell(repair_lance_index(plan))


def _tell(lines: Sequence[str]) -> None:
    for line in lines:
        say(one_line(line))
