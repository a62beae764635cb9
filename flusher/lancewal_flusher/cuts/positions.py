"""Open the tables of a cut, and ask for the cut's positions, for all tables at once.

Guarantees
 1. The positions of a topic are asked for once, and hold for all tables of the topic.  So a cut contains a record in
    each of these tables or in none.
 2. The positions are asked for after the call began.  Records that were acknowledged before the call lie before the
    positions.
 3. ``took_ms`` is the time from the first question to the last answer.  The positions of two topics may be that far
    apart in time.

A ``PositionSource`` gives the positions.  Its ``holds`` says what a cut keeps together.  Ends of topics have
``positions``.  A source that knows the newest complete transaction has ``transactions``: the cut contains each
transaction whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from lancewal_core.catalog.cut import Holds
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.errors import InvalidInput, LancewalError, counted
from lancewal_core.names.ids import Position
from lancewal_core.open import Address
from lancewal_core.process.tasks import Tasks
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import TableSettings
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import Contract
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.open import Threads, open_on

if TYPE_CHECKING:
    from lancewal_reader.reading.reads import Reads

T = TypeVar("T")
ByTopic: TypeAlias = Mapping[str, Mapping[int, Position]]
"""Positions by topic, then by partition."""


@dataclass(frozen=True, slots=True)
class CutMember:
    """An open table of a cut.  ``name``: its name in the catalog.  ``reads`` reads the same table as ``context``."""

    name: str
    context: FlusherContext
    reads: Reads

    @property
    def contract(self) -> Contract:
        return self.context.contract

    def named(self, error: LancewalError) -> LancewalError:
        """Return the error with the table's name in its text."""
        return named(self.name, error)


def open_member(
    settings: Settings,
    entry: TableEntry,
    threads: Threads,
    stack: ExitStack,
    cache_bytes_max: int,
    observed: Callable[[ObjectStore], ObjectStore] = lambda store: store,
) -> CutMember:
    """Open the table of a catalog entry.  ``stack`` closes it.  ``observed`` returns a store that stands for the
    table's store, for example to count requests.  Errors name the table.

    ``cache_bytes_max``: most bytes of unmerged segments that the table's reads keep in memory.
    """
    from lancewal_reader.table import reads_of

    of = settings
    try:
        store = observed(Address.of(settings, entry.uri).store())  # an address that lancewal does not take ends here
        if entry.uri != settings.table.uri:
            section = TableSettings.model_validate({"uri": entry.uri, "base_paths": settings.table.base_paths})
            of = settings.model_copy(update={"table": section})
        context = open_on(of, threads, stack, on_threads=True, store=store)
    except LancewalError as error:
        raise named(entry.name, error) from error
    return CutMember(entry.name, context, reads_of(context, entry.uri, cache_bytes_max))


@dataclass(frozen=True, slots=True)
class PositionSource:
    """Source of the positions of a cut.

    ``positions`` gets one contract for each topic.  It returns a position for each partition of these topics, or
    raises an error.  ``holds``: as in the module docstring.
    """

    positions: Callable[[Sequence[Contract]], ByTopic]
    holds: Holds = "positions"


@dataclass(frozen=True, slots=True)
class CutAt:
    """Positions of a cut.  ``of`` maps the name of each table to positions by partition."""

    of: Mapping[str, Mapping[int, Position]]
    holds: Holds
    asked_ms: int
    """When the positions were asked for, in milliseconds since 1970."""
    took_ms: int


def ask(source: PositionSource, members: Sequence[CutMember]) -> CutAt:
    """Ask the source once for the positions of all topics.

    Raises ``InvalidInput`` if tables of one topic have different topic ids or numbers of partitions.  Errors of the
    source are raised too.
    """
    contracts = {one[0].contract.topic: one[0].contract for one in _by_topic(members)}
    found, asked_ms, took_ms = _timed(members, lambda: source.positions(list(contracts.values())))
    of = {member.name: _of_all(found[member.contract.topic], member.contract) for member in members}
    return CutAt(of, source.holds, asked_ms, took_ms)


def durable(members: Sequence[CutMember], tasks: Tasks) -> CutAt:
    """Return the positions that are durable now.  If several tables have the same topic, the lowest position counts.

    No broker is asked.  Raises ``InvalidInput`` as ``ask`` does, and errors of strong reads, with the table's name.
    """
    groups = _by_topic(members)
    reached, asked_ms, took_ms = _timed(members, lambda: tasks.map(durable_of, members))
    cut_of = dict(zip((member.name for member in members), reached, strict=True))
    of: dict[str, Mapping[int, Position]] = {}
    for group in groups:
        partitions = range(group[0].contract.partitions)
        lowest = {p: min(cut_of[member.name][p] for member in group) for p in partitions}
        of |= {member.name: lowest for member in group}
    return CutAt(of, "positions", asked_ms, took_ms)


def named(table: str, error: LancewalError) -> LancewalError:
    """Return the error with the table's name in its text."""
    return type(error)(f"table {table}: {error}", **error.where)


def durable_now(member: CutMember) -> dict[int, Position]:
    """Return for each partition the position up to which a strong read sees records now."""
    from lancewal_reader.point.read_options import read_options
    from lancewal_reader.reading.reads import wanted_of

    positions = member.reads.plan(wanted_of(None, None, read_options())).receipt.positions
    return {region.partition: positions.get(region, Position(0)) for region in member.contract.regions}


def durable_of(member: CutMember) -> dict[int, Position]:
    """Return the positions of ``durable_now``.  Errors name the table."""
    try:
        return durable_now(member)
    except LancewalError as error:
        raise member.named(error) from error


def _timed(members: Sequence[CutMember], call: Callable[[], T]) -> tuple[T, int, int]:
    """Return the result of ``call``, when it began (ms since 1970), and how many milliseconds it took."""
    clock = members[0].context.clock
    asked_ms, began = clock.now_ms(), clock.monotonic()
    found = call()
    return found, asked_ms, round((clock.monotonic() - began) * 1000)


def _of_all(positions: Mapping[int, Position], contract: Contract) -> dict[int, Position]:
    return {partition: positions[partition] for partition in range(contract.partitions)}


def _by_topic(members: Sequence[CutMember]) -> list[list[CutMember]]:
    """Group the tables by topic.  Raises ``InvalidInput`` if two tables name a topic with different topic ids or
    numbers of partitions.
    """
    groups: dict[str, list[CutMember]] = {}
    for member in members:
        groups.setdefault(member.contract.topic, []).append(member)
    for first, *others in groups.values():
        for other in others:
            one, two = first.contract, other.contract
            if (one.topic_id, one.partitions) != (two.topic_id, two.partitions):
                raise InvalidInput(
                    f"tables {first.name} and {other.name} differ in topic {one.topic}: id {one.topic_id} with "
                    f"{counted(one.partitions, 'partition')}, and id {two.topic_id} with "
                    f"{counted(two.partitions, 'partition')}. Make separate cuts of them, or change the contract "
                    "of the table with the old topic or partitions (`lancewal table alter`)",
                    topic=one.topic,
                )
    return list(groups.values())
