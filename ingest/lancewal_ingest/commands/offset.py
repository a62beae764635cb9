"""``lancewal offset reject|accept-loss``: decisions that only a person may take about offsets of a topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.named import PartitionArgument, RecordArgument, partition_named, record_named
from lancewal_core.cli.options import Asked, DryRunOption, YesOption, agree
from lancewal_core.errors import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from lancewal_core.names.ids import Position, Region
    from lancewal_core.settings.load import Settings
    from lancewal_core.table.contract import Contract
    from lancewal_ingest.commands.operator.accept_loss import Accepted
    from lancewal_ingest.commands.operator.reject import Passed
    from lancewal_ingest.context import IngestContext
    from lancewal_ingest.kafka.source import Offsets
    from lancewal_kafka.records import Records

app = CommandApp(
    help="Skip offsets that stopped a partition. If the partition's position has moved, running ingest goes on within ten "
    "seconds. Else restart ingest."
)


@app.command(name="accept-loss")
def accept_loss(
    asked: Asked,
    partition: PartitionArgument,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Go on after offsets that Kafka deleted before they became durable, or although the topic lost its tail. Record
    the loss.

    JSON has `partition`, `losses` (`kind`, and the offsets from `first` to before `next`), `goes_on` (the position at
    which the partition continues), and `dry_run`.

    Example: lancewal offset accept-loss orders-3 --dry-run
    """
    from lancewal_ingest.commands.operator.accept_loss import accept_loss, plan_loss
    from lancewal_ingest.context import new_owner

    settings = asked.settings()
    with _opened(settings, lambda contract: partition_named(partition, contract)) as place:
        accepted = plan_loss(place.context, new_owner(), place.region, place.offsets)
        if not dry_run:
            agree(yes, loss_text(place.name, accepted))
            accepted = accept_loss(place.context, new_owner(), place.region, place.offsets)
    content = loss_json(place.region.partition, accepted, dry_run=dry_run)
    asked.report(content, _would(dry_run) + loss_text(place.name, accepted), dry_run=dry_run)


def loss_json(partition: int, accepted: Accepted, *, dry_run: bool) -> dict[str, object]:
    """Return the losses that were recorded, or would be in a dry run, in the form of the command's JSON."""
    losses = [loss.model_dump(mode="json", include={"kind", "first", "next"}) for loss in accepted.losses]
    return {"partition": partition, "losses": losses, "goes_on": accepted.goes_on, "dry_run": dry_run}


def loss_text(name: str, accepted: Accepted) -> str:
    """Return the recorded losses of the partition ``name`` as text for people."""
    if accepted.losses[0].kind == "replaced":
        first = accepted.losses[0].first
        return (
            f"{name}: Kafka ends at {first}, and what was durable up to position {accepted.goes_on} stays. Recorded as lost: "
            f"offsets {first} to {accepted.goes_on - 1} in Kafka. Records that Kafka has got or gets there, since it lost its "
            f"tail, are never read. Ingest goes on at {accepted.goes_on}, once Kafka has grown up to there"
        )
    spans = [
        f"{'' if loss.kind == 'offsets' else 'deletes among '}offsets {loss.first} to {loss.next - 1}"
        for loss in accepted.losses
    ]
    return f"{name}: {', and '.join(spans)} are recorded as lost; the partition goes on at {accepted.goes_on}"


@app.command()
def reject(
    asked: Asked,
    record: RecordArgument,
    through: Annotated[
        int | None,
        typer.Option(
            help="Continue up to and including this offset. Bad and misrouted records are rejected, good ones become "
            "rows. Without this option only the one record is rejected.",
            min=0,
        ),
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Send the record that stopped a partition to the dead-letter topic, and go on after that record. With --through,
    do so for all bad records up to an offset.

    JSON has `partition`, `offset`, `first` (`kind` and `message` of the record that had stopped it), and how many
    were `rejected` by kind. `rows` counts the good records, `goes_on` is the position at which the partition
    continues. If offsets there cannot be read, `unreadable_to` is the position after them. JSON also has `topic` of
    the dead letters, and `dry_run`.

    Example: lancewal offset reject orders-3-1841 --through 1850
    """
    from lancewal_core.names.ids import Position
    from lancewal_ingest.commands.operator.reject import Partition, reject
    from lancewal_ingest.context import new_owner
    from lancewal_ingest.kafka.dead_letters import KafkaDeadLetters
    from lancewal_kafka.clients import unpacking_bounded
    from lancewal_kafka.reread import read_records

    settings = asked.settings()
    with _opened(settings, lambda contract: record_named(record, contract)[0]) as place:
        contract = place.context.contract
        offset = record_named(record, contract)[1]
        # The limits of ingest's own client: offsets that ingest cannot read must be unreadable here too.
        client = unpacking_bounded(settings.kafka.client(), settings.ingest.memory_bytes_max, contract.record_bytes_max)
        group = settings.kafka.group(contract.table_uuid)
        letters = KafkaDeadLetters(client, contract.dead_letters, group)
        letters.check()

        def read(region: Region, first: Position, end: Position) -> tuple[Records, Position]:
            found = read_records(client, group, region, first, end)
            place.check_topic()  # after the newest record has arrived, as in ingest
            return found

        last = Position(offset if through is None else through)
        kafka = Partition(place.offsets, read, letters, look_only=dry_run)
        passed = reject(place.context, new_owner(), place.region, Position(offset), last, kafka)
    done = {"partition": place.region.partition, "offset": offset, **passed_json(passed)}
    text = passed_text(place.name, offset, through, passed, letters.topic)
    asked.report({**done, "topic": letters.topic, "dry_run": dry_run}, _would(dry_run) + text, dry_run=dry_run)


def passed_json(passed: Passed) -> dict[str, object]:
    """Return the result of ``lancewal offset reject`` in the form of its JSON."""
    return {
        "first": {"kind": passed.first.kind, "message": passed.first.message},
        "rejected": dict(sorted(passed.rejected.items())),
        "rows": passed.rows,
        "goes_on": passed.goes_on,
        "unreadable_to": passed.unreadable_to,
    }


def passed_text(name: str, offset: int, through: int | None, passed: Passed, letters: str) -> str:
    """Return the result of ``lancewal offset reject`` as text for people.  ``letters``: the dead-letter topic."""
    more = (
        ""
        if passed.unreadable_to is None
        else f". Offsets up to {passed.unreadable_to - 1} cannot be read either: `lancewal offset reject "
        f"{name}-{passed.goes_on} --through {passed.unreadable_to - 1}`"
    )
    again = f"within seconds, if ingest runs{more}"
    if through is None:
        kept = f"in {letters}" if passed.letters else "no dead letter"
        return (
            f"{name}-{offset}: rejected ({passed.first.kind}: {passed.first.message}); it is {kept}, and the partition goes "
            f"on after it {again}"
        )
    total = sum(passed.rejected.values())
    kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(passed.rejected.items()))
    return (
        f"{name}, offsets {offset} to {through}: {counted(total, 'record')} rejected ({kinds}), {passed.letters} of them "
        f"as dead letters in {letters}; {passed.rows} became rows. The partition goes on at {passed.goes_on} {again}"
    )


def _would(dry_run: bool) -> str:
    """Return the first words of the report of a dry run; empty if it is not a dry run."""
    return "without --dry-run: " if dry_run else ""


@dataclass(frozen=True, slots=True)
class _Place:
    context: IngestContext
    region: Region
    offsets: Callable[[], Offsets]
    """Ask the broker, at each call, for the offsets that Kafka has of the partition."""
    check_topic: Callable[[], None]
    """Raise an error if the live topic is not the topic of the contract any more."""

    @property
    def name(self) -> str:
        """Name of the partition in messages: ``orders-3``."""
        return f"{self.region.topic}-{self.region.partition}"


@contextmanager
def _opened(settings: Settings, named: Callable[[Contract], int]) -> Iterator[_Place]:
    from lancewal_core.process.clock import SystemClock
    from lancewal_core.process.tasks import ThreadTasks
    from lancewal_ingest.append.draining import drain_of
    from lancewal_ingest.context import open_context
    from lancewal_ingest.kafka.consumer import ConfluentSource
    from lancewal_ingest.kafka.source import check_topic

    settings.need("table.uri", "kafka.bootstrap_servers")
    with ExitStack() as stack:
        tasks = ThreadTasks(workers=1)
        stack.callback(tasks.close)
        context = open_context(settings, tasks, SystemClock())
        contract = context.contract
        region = contract.regions[named(contract)]
        source = ConfluentSource(
            settings.kafka.client(), {contract.topic: contract.topic_id}, settings.kafka.group(contract.table_uuid)
        )
        stack.callback(source.close)
        context = replace(context, drain=drain_of(context, source))
        check_topic(contract, source, context.drain)
        yield _Place(
            context,
            region,
            lambda: source.offsets(region),
            lambda: check_topic(contract, source, context.drain),
        )
