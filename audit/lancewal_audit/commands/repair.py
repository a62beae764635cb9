"""``lancewal repair``: repair damage that stops services, after a look with ``--dry-run``.

Each command finds out what must be done, and reports it.  It asks before something is given up, does the repair, and
reports that too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.named import PartitionArgument, partition_named
from lancewal_core.cli.options import NOTHING_CHANGED, Asked, DryRunOption, YesOption, agree
from lancewal_core.cli.output import one_line, say, say_json
from lancewal_core.process.progress import step

if TYPE_CHECKING:
    from lancewal_audit.repair.told import Told

app = CommandApp(
    help="Repair a table's state. With --dry-run, each command shows what it would do, and changes nothing. "
    "As JSON: what was `found`, what was `done`, and `dry_run`. The first two are lists of sentences (`message`) with the "
    "fields of log events."
)


_LOOKING = "looking for what is damaged"


@app.command()
def generation(
    asked: Asked,
    partition: PartitionArgument,
    number: Annotated[
        int | None,
        typer.Argument(
            metavar="GENERATION",
            help="Rebuild this generation even if it is not damaged; by default all damaged ones.",
            min=1,
        ),
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Rebuild the flushes of a partition's unmerged generations from their WAL entries.

    Example: lancewal repair generation orders-3 --dry-run
    """
    from lancewal_audit.repair.context import opened
    from lancewal_audit.repair.generation import plan_generations, repair_generations
    from lancewal_core.names.ids import Generation

    with opened(asked.settings()) as context:
        named = None if number is None else Generation(number)
        with step(_LOOKING):
            region = context.contract.regions[partition_named(partition, context.contract)]
            plan = plan_generations(context, region, named)
        _mend(asked, dry_run, plan.lines(), lambda: repair_generations(context, plan))


@app.command("region")
def region_(
    asked: Asked,
    partition: PartitionArgument,
    before_gap: Annotated[
        bool,
        typer.Option(
            "--before-gap",
            help="If no log has some offsets: end the state before these. Ingest reads the rest from Kafka, if it has them.",
        ),
    ] = False,
    version_seen: Annotated[
        int,
        typer.Option(
            help="Number of a version of the partition's state page that a log line of a service names. If the newest "
            "version in the store is older, later ones count as lost.",
            min=0,
        ),
    ] = 0,
    dry_run: DryRunOption = False,
) -> None:
    """Rebuild the state of a partition from the logs, if its newest versions are lost or damaged.

    Before, pause ingest and the flusher by `lancewal pause`, and end all ingest processes.

    Example: lancewal repair region orders-3 --dry-run
    """
    from lancewal_audit.repair.context import opened
    from lancewal_audit.repair.index.repair import plan_state, repair_state
    from lancewal_audit.repair.topic_records import KafkaTopicRecords
    from lancewal_core.names.ids import Position
    from lancewal_kafka.topic import TopicInspector

    settings = asked.settings()
    with opened(settings) as context:
        region = context.contract.regions[partition_named(partition, context.contract)]

        def low() -> Position:
            settings.need("kafka.bootstrap_servers")
            return KafkaTopicRecords(settings.kafka, context.contract).low(region.partition)

        def mend() -> list[Told]:
            settings.need("kafka.bootstrap_servers")
            inspector = TopicInspector(settings.kafka.client())
            group = settings.kafka.group(context.contract.table_uuid)

            def members() -> int:
                return len(inspector.members(region.topic, group))

            return repair_state(context, region, members, low, before_gap=before_gap, above=version_seen)

        with step(_LOOKING):
            plan = plan_state(context, region, low, before_gap=before_gap, above=version_seen)
        _mend(asked, dry_run, plan.lines(), mend)


@app.command()
def segment(
    asked: Asked,
    key: Annotated[str, typer.Argument(metavar="OBJECT", help="The segment's key, as the error message names it.")],
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Give up records that Kafka no longer has, and record which offsets were lost."
        ),
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Read the records of a lost or damaged WAL segment from Kafka again, and flush the generations that need them.

    Example: lancewal repair segment _lancewal/wal/LOG/NUMBER.arrow --dry-run
    """
    from lancewal_audit.repair.context import opened
    from lancewal_audit.repair.segment import plan_segment, repair_segment
    from lancewal_audit.repair.topic_records import KafkaTopicRecords

    settings = asked.settings()
    settings.need("kafka.bootstrap_servers")
    with opened(settings) as context:
        records = KafkaTopicRecords(settings.kafka, context.contract)
        with step(_LOOKING):
            plan = plan_segment(context, records, key, accept_loss=accept_loss)
        given_up = any(generation.given_up for generation in plan.needed)
        loss = "these records are given up" if given_up and not yes else None
        _mend(asked, dry_run, plan.lines(), lambda: repair_segment(context, records, plan), loss)


@app.command()
def restored(
    asked: Asked,
    rows_since: Annotated[
        Literal["drop", "replay"],
        typer.Option(help="Policy for rows merged after the restored version: drop, or replay (merge them again)."),
    ],
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """After a user restored the Lance table, decide what becomes of rows merged after the restored version.

    Example: lancewal repair restored --rows-since replay --dry-run
    """
    from lancewal_audit.repair.context import opened
    from lancewal_audit.repair.restored import plan_restored, repair_restored

    with opened(asked.settings()) as context:
        with step(_LOOKING):
            plan = plan_restored(context, rows_since)
        decision = f"the restore is decided: {rows_since}" if plan.records and not yes else None
        _mend(asked, dry_run, plan.lines(), lambda: repair_restored(context, plan), decision)


@app.command("merged-position")
def merged_position(
    asked: Asked,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Infer the merged positions if the table versions that recorded them are gone, and record the result.

    Example: lancewal repair merged-position --dry-run
    """
    from lancewal_audit.repair.context import opened
    from lancewal_audit.repair.told import told
    from lancewal_audit.repair.watermark import accept_watermark, plan_watermark

    with opened(asked.settings()) as context:
        with step(_LOOKING):
            plan = plan_watermark(context)
        if plan is None:
            _mend(asked, dry_run, [told("the merged positions are known: nothing to do")], list)
        else:
            conclusion = None if yes else "the command records these merged positions"
            _mend(asked, dry_run, plan.lines(), lambda: accept_watermark(context, plan), conclusion)


@app.command()
def index(
    asked: Asked,
    name: Annotated[str, typer.Argument(help="The index, as `lancewal verify --indexes` and Lance name it.")],
    dry_run: DryRunOption = False,
) -> None:
    """Rebuild a secondary index of the Lance table, with the parameters that it has.  No row changes.

    Example: lancewal repair index customer_idx --dry-run
    """
    from lancewal_audit.repair.context import opened
    from lancewal_audit.repair.lance_index import plan_lance_index, repair_lance_index

    with opened(asked.settings()) as context:
        with step(_LOOKING):
            plan = plan_lance_index(context, name)
        _mend(asked, dry_run, plan.lines(), lambda: repair_lance_index(plan))


def _mend(
    asked: Asked, dry_run: bool, found: Sequence[Told], do: Callable[[], Sequence[Told]], ask: str | None = None
) -> None:
    """Report findings, then unless ``dry_run`` do the repair and report what was done.

    ``ask``: the consequence that a person must agree to before the repair; None if there is none, or with ``--yes``.
    """
    as_text = not asked.as_json
    if as_text:
        _tell(found)
    done: Sequence[Told] = ()
    if not dry_run:
        if ask is not None:
            if not as_text:
                _tell(found, err=True)  # a person who is asked must see the findings
            agree(False, ask)
        with step("repairing"):
            done = do()
    if as_text:
        _tell(done)
        if dry_run:
            say(NOTHING_CHANGED)
    else:
        both = {"found": [one.as_json() for one in found], "done": [one.as_json() for one in done]}
        say_json({**both, "dry_run": dry_run})


def _tell(said: Sequence[Told], *, err: bool = False) -> None:
    for one in said:
        say(one_line(one.message), err=err)
