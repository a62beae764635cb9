"""``lancewal table alter`` and ``table rebind --topic-id``: a new version of the contract.

Guarantees
 1. A key never has unmerged rows under both contracts: the old one ends only when every durable row is merged and, where
    the old partitions stay, when Kafka holds nothing beyond.
 2. The contract is swapped by compare-and-swap: of two commands at once one wins, the other says so.
 3. Whoever works by the old contract notices: ingest because the topic is not the contract's, the flusher before it trims,
    a reader before its next strong read.

Steps
 1. The topic must be what the command says, and not what the contract says.
 2. Each region of the old contract: durable position = merged position (and = Kafka's end, for ``alter``).
 3. Put the next version of the contract.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lancewal_core.clock import SystemClock
from lancewal_core.contract import FAMILY, Contract, decode_contract, encode_contract, read_contract
from lancewal_core.durable_position import durable_position
from lancewal_core.errors import ContractMismatch, InvalidInput, SettingsError
from lancewal_core.ids import Position
from lancewal_core.open_checks import check_place, check_settings, check_table
from lancewal_core.regions import RegionIndexes
from lancewal_core.settings import Settings
from lancewal_core.store import ObjectStore
from lancewal_core.store_obstore import open_store
from lancewal_core.table import Table
from lancewal_core.table_lance import LanceTable
from lancewal_core.tasks import ThreadTasks
from lancewal_core.ttl import Ttl, check_ttl
from lancewal_core.versioned import Declined, Swapped, Version, swap
from lancewal_core.watermarks import Watermarks
from lancewal_flusher.topic_checks import TopicInspector, TopicState

Change = Callable[[Contract, TopicState, Mapping[int, Position]], Contract]
"""The new contract from the old one, the topic, and where each old partition ended."""


_BOTH_WORK = "Stop the producers, let ingest and flusher work until `lancewal status` shows no lag and nothing unmerged"
_MERGE = "Merge what is durable: `lancewal flush run --once` (ingest is not needed for it)"
"""The old topic is gone, and ingest refuses the new one."""


def alter_partitions(settings: Settings, partitions: int, inspector: TopicInspector | None = None) -> Contract:
    """Take up partitions that were added to the topic.  ``InvalidInput`` where guarantee 1 does not hold."""
    inspector = inspector or TopicInspector(settings.kafka)

    def change(old: Contract, topic: TopicState, ended: Mapping[int, Position]) -> Contract:
        if topic.topic_id != old.topic_id:
            raise _not_so(old, f"has id {topic.topic_id}, not {old.topic_id}: see `lancewal table rebind`")
        if topic.partitions != partitions:
            raise _not_so(old, f"has {topic.partitions} partitions, not {partitions}")
        if partitions <= old.partitions:
            raise SettingsError(f"the contract says {old.partitions} partitions already: {partitions} adds none")
        for partition, end in inspector.ends(old.topic, range(old.partitions)).items():
            if end > ended[partition]:
                problem = f"Kafka holds offsets {ended[partition]} to {end - 1}, not durable yet"
                raise _unfinished(old, partition, problem, _BOTH_WORK)
        altered_at = tuple(ended[p] for p in range(old.partitions))
        return old.model_copy(update={"version": old.version + 1, "partitions": partitions, "altered_at": altered_at})

    return _change(settings, inspector, change, _BOTH_WORK)


def rebind_topic(settings: Settings, topic_id: str, inspector: TopicInspector | None = None) -> Contract:
    """Take up a topic that was deleted and made again under its name, from its first record."""
    inspector = inspector or TopicInspector(settings.kafka)

    def change(old: Contract, topic: TopicState, ended: Mapping[int, Position]) -> Contract:
        if topic.topic_id != topic_id:
            raise _not_so(old, f"has id {topic.topic_id}, not {topic_id}")
        if topic_id == old.topic_id:
            raise SettingsError(f"the contract names topic id {topic_id} already")
        return old.model_copy(
            update={
                "version": old.version + 1, "topic_id": topic_id, "partitions": topic.partitions,
                "start": (0,) * topic.partitions, "altered_at": (),
            }
        )  # fmt: skip

    return _change(settings, inspector, change, _MERGE)


def alter_ttl(settings: Settings, ttl: Ttl | None) -> Contract:
    """Let rows expire, after another time, or no more.  Which rows a record makes does not change: nothing need be merged."""
    settings.need("table.uri")
    uri, options = settings.table.uri, settings.store.options
    store = open_store(uri, options)
    old = read_contract(store, uri)
    check_place(uri, old)
    check_table(LanceTable(uri, options).newest(), old)
    check_ttl(ttl, old.rows, old.patches)
    column, seconds = (None, None) if ttl is None else (ttl.column, ttl.seconds)
    new = old.model_copy(update={"version": old.version + 1, "ttl_column": column, "ttl_s": seconds})
    if new.ttl == old.ttl:
        raise SettingsError("the contract says so already: nothing was changed")
    try:
        check_settings(settings, new)
    except ContractMismatch as error:
        raise ContractMismatch(
            "nothing was changed: your settings would contradict the new contract, and every service would refuse them. "
            f"Change or remove these first. By the new contract: {error}",
            **error.where,
        ) from error
    return put_next(store, old, new)


def _change(settings: Settings, inspector: TopicInspector, change: Change, way_on: str) -> Contract:
    settings.need("table.uri", "kafka.bootstrap_servers")
    uri, options = settings.table.uri, settings.store.options
    store, table = open_store(uri, options), LanceTable(uri, options)
    old = read_contract(store, uri)
    check_place(uri, old)
    check_settings(settings, old)
    check_table(table.newest(), old)
    # Step 1
    topic = inspector.describe(old.topic)
    # Step 2
    ended = _merged_ends(store, table, old, way_on)
    # Step 3
    return put_next(store, old, change(old, topic, ended))


def put_next(store: ObjectStore, old: Contract, new: Contract) -> Contract:
    """Swap in the next version of the contract; ``ContractMismatch`` if somebody else was faster."""

    def decide(found: Version | None) -> Contract | None:
        unchanged = found is not None and decode_contract(found.data, FAMILY.key(found.version)) == old
        return new if unchanged else None

    match swap(store, FAMILY, SystemClock(), decide, encode_contract):
        case Swapped():
            return new
        case Declined():
            raise ContractMismatch("somebody else changed the contract at the same time: look at `lancewal table show`")


def _merged_ends(store: ObjectStore, table: Table, contract: Contract, way_on: str) -> dict[int, Position]:
    """Where each partition ended; ``InvalidInput``, which names the ``way_on``, while durable rows are not merged."""
    _, in_force = Watermarks(store, table).newest()
    indexes = RegionIndexes(store, SystemClock())
    ended: dict[int, Position] = {}
    tasks = ThreadTasks(workers=1)
    try:
        for region in contract.regions:
            durable = durable_position(store, tasks, indexes, contract, region) or Position(0)
            mark = in_force.regions.get(region)
            merged = mark.next if mark is not None else contract.start_of(region.partition) or Position(0)
            if durable > merged:
                problem = f"offsets {merged} to {durable - 1} are not merged yet"
                raise _unfinished(contract, region.partition, problem, way_on)
            ended[region.partition] = merged
    finally:
        tasks.close()
    return ended


def _unfinished(contract: Contract, partition: int, problem: str, way_on: str) -> InvalidInput:
    return InvalidInput(
        f"topic {contract.topic} partition {partition}: {problem}. {way_on}, and run the command again",
        topic=contract.topic,
        partition=partition,
    )


def _not_so(contract: Contract, problem: str) -> SettingsError:
    return SettingsError(f"topic {contract.topic} {problem}. Nothing was changed")
