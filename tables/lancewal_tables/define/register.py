"""Make a Lance table a lancewal table: contract, checkpoint, identity.  ``create`` and ``attach`` share these steps.

Guarantees
 1. An identity (``table_uuid``) is created with the contract that names it, in the run that puts that contract.  No other
    table gets it: neither a copy of the folder, whenever it was made, nor a clone, whose config has the original's.
 2. A run goes on with what an earlier run has left only if this folder's own contract says so.
 3. "Nothing merged" is recorded only for a version that is older than the identity: a run that comes too late records
    nothing.

Steps, each done once however often it is repeated
 0. The store proves that it keeps put-if-absent (``store_proof``), which all later puts rely on.  Without this proof no
    lancewal table is made: what ``create`` has left is an empty Lance table.
 1. Put contract version 1 by put-if-absent, with a new uuid and the table's place.  Of two runs at once one wins.  Nobody
    looks at anything before this contract is there.
 2. Put the checkpoint ``merges/<newest version>`` "nothing merged".  Walks for watermarks end there and never read what the
    table was before (a restore or an overwrite long ago).
 3. Set ``lancewal.table_uuid`` in the Lance table's config to the contract's, whatever it was.  Until then services and
    readers refuse the table, so nothing is produced under the new identity.
 4. Put a checkpoint of that version too.  From here on any clean-up may take lower versions.  If this checkpoint is missing,
    the flusher's first round writes it.

After a crash before step 1 the same command starts over.  After a later crash, it goes on with step 2 under the
contract that is there.  This contract must be of version 1 and of this place, without a region yet.  The table's
config must have another uuid.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import assert_never
from uuid import uuid4

from lancewal_core.errors import LancewalError, StoreNotWritable, StoreUnavailable, TableExists, TableMissing
from lancewal_core.names import paths
from lancewal_core.names.ids import Making, TableVersion
from lancewal_core.open import Folder
from lancewal_core.process.library_errors import first_line, way_on
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.rows.column_types import format_type
from lancewal_core.rows.schema import RowSchema
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import TableSettings
from lancewal_core.store.object_store import Done, Lost, ObjectStore, Unknown, put_once
from lancewal_core.store.place import place_of, same_place
from lancewal_core.store.refusal import refusal_of_puts, what_to_set
from lancewal_core.table.checks import check_columns, check_settings, elsewhere_advice
from lancewal_core.table.contract import Column, Contract, encode_contract, newest_contract
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import PinnedTable
from lancewal_core.table.store_proof import prove_store
from lancewal_core.table.watermarks import NOTHING_MERGED, TABLE_UUID, Watermarks
from lancewal_tables.define.topic import FittingTopic

_TRIES = 4
"""Attempts of a commit that others' commits to the same key have met."""


def begun_contract(folder: Folder) -> Contract | None:
    """Return the contract that an interrupted run has put, to go on with; None if nothing was put.

    ``TableExists`` if this is a lancewal table, or a copy of one, or holds objects that one has left.
    ``StoreRefused`` if the store lets nobody in.
    """
    uri = folder.table.uri
    try:
        contract = newest_contract(folder.store)
        left = _left(folder.store, contract)
    except StoreUnavailable as error:
        raise store_error(error, f"looking for a contract at {uri}") from error
    if contract is None:
        if left:
            raise TableExists(
                f"{uri} has no contract, but {left[0]}: what a lancewal table has left there. If nothing of it is "
                f"needed, delete the folder {paths.ROOT.rstrip('/')} in it, and run the same command again"
            )
        return None
    here = place_of(uri)
    if contract.place is not None and not same_place(contract.place, here):
        raise TableExists(
            f"{here} is a lancewal table, and its contract is that of the table at {contract.place}. "
            f"{elsewhere_advice(contract.place)}"
        )
    if left or contract.place is None or contract.version > 1 or _names(folder.table, contract):
        raise TableExists(
            f"{uri} is already a lancewal table: topic {contract.topic}, contract version {contract.version}; "
            "see `lancewal table show`"
        )
    return contract


def _left(store: ObjectStore, contract: Contract | None) -> list[str]:
    """Return keys of objects that the contract's table has already written; without a contract, those that any table has
    left."""
    making = None if contract is None else contract.making
    prefixes = [paths.pages_prefix(making), paths.regions_prefix(making)]
    if contract is None:
        prefixes.append(paths.makings_prefix())
    return [info.key for prefix in prefixes for info in store.list(prefix, limit=1)]


def _names(table: LanceTable, contract: Contract) -> bool:
    """Whether the contract's Lance table is there and is the contract's, or is not there at all."""
    try:
        return table.newest().config.get(TABLE_UUID) == contract.table_uuid
    except TableMissing:
        return True


def go_on(
    folder: Folder, pinned: LancePinnedTable, contract: Contract, settings: Settings, *, look_only: bool = False
) -> Contract:
    """Steps 0 and 2 to 4 under the contract of an interrupted run; the settings must be those that it was made from."""
    check_settings(settings, contract)
    check_columns(pinned, contract)
    if not look_only:
        _prove(folder)
        _checkpoint(folder, pinned, contract)
        _take_effect(folder, contract)
    return contract


def first_contract(
    table: LanceTable, columns: Sequence[Column], rows: RowSchema, settings: TableSettings, topic: FittingTopic
) -> Contract:
    """Return the contract that step 1 puts; nothing is written."""
    return Contract(
        table_uuid=str(uuid4()),
        place=place_of(table.uri),
        making=Making(uuid4().hex),
        topic=topic.state.topic,
        topic_id=topic.state.topic_id,
        partitions=topic.state.partitions,
        primary_key=rows.primary_key,
        region_key=rows.region_key,
        value_format=settings.format.value,
        key_format=settings.format.key,
        start=tuple(topic.start),
        columns=tuple(columns),
        patches=settings.patches,
        on_bad_record=settings.on_bad_record,
        on_misrouted=settings.on_misrouted,
        dead_letter_topic=settings.dead_letter_topic or None,
        record_bytes_max=int(settings.record_bytes_max),
        history_window_s=settings.history_window_s,
        version_window_s=settings.version_window_s,
        grace_s=settings.grace_s,
        freshness_target_s=settings.freshness_target_s,
        ttl_column=settings.ttl_column or None,
        ttl_s=settings.ttl_s or None,
    )


def register(folder: Folder, pinned: LancePinnedTable, contract: Contract) -> Contract:
    """Steps 0 to 4 with its first contract, for a table whose newest version is ``pinned``."""
    # Step 0
    _prove(folder)
    # Step 1
    key = paths.contract_version(contract.version, contract.making)
    outcome = put_once(folder.store, key, encode_contract(contract))
    match outcome:
        case Done():
            pass
        case Lost():
            raise TableExists(f"{folder.table.uri} was made a lancewal table by somebody else at the same time")
        case Unknown(cause=cause):
            raise store_error(OSError(cause), f"writing {key}")
        case _:
            assert_never(outcome)
    # Step 2
    _checkpoint(folder, pinned, contract)
    _take_effect(folder, contract)
    return contract


def _prove(folder: Folder) -> None:
    with closing(ThreadTasks()) as tasks:
        prove_store(folder.store, tasks, folder.way, folder.table.uri, lambda: uuid4().hex)


def _take_effect(folder: Folder, contract: Contract) -> None:
    # Step 3
    identify(folder.table, contract)
    # Step 4.  Services may be at work already.
    watermarks = Watermarks(folder.store, folder.table, contract.making)
    pinned, in_force = watermarks.newest()
    watermarks.record(in_force, TableVersion(pinned.version), "checkpoint")


def identify(table: LanceTable, contract: Contract) -> None:
    """The Lance table's config names the contract's uuid."""
    for _ in range(_TRIES):
        pinned = table.newest()
        if pinned.config.get(TABLE_UUID) == contract.table_uuid:
            return
        try:
            pinned.dataset.update_config({TABLE_UUID: contract.table_uuid})
        except OSError as error:
            if "incompatible transaction" not in str(error).lower():
                raise store_error(error, f"setting {TABLE_UUID} in the config of {table.uri}") from error
    if table.newest().config.get(TABLE_UUID) != contract.table_uuid:
        raise StoreUnavailable(f"others keep changing the config of {table.uri}; run the same command again")


def _checkpoint(folder: Folder, pinned: LancePinnedTable, contract: Contract) -> None:
    """Step 2."""
    version = TableVersion(pinned.version)
    Watermarks(folder.store, folder.table, contract.making).record(NOTHING_MERGED, version, "checkpoint")
    key = paths.merge_record(version, contract.making)
    if folder.store.get(key) is None:
        raise StoreNotWritable(
            f"{key} could not be written into {folder.table.uri}. Check that there is room, that the "
            "folder is writable and that the store's credentials allow PutObject, then run the same command again"
        )


def store_error(error: BaseException, act: str) -> LancewalError:
    """Return the error for a failure of the store: a person must act, or try again."""
    # A store's reason, such as NoSuchBucket, may stand in a later line.
    said = f"{error} {error.__cause__}"
    text = str(error) if isinstance(error, LancewalError) else f"{first_line(error)}{what_to_set(said)}"
    found = refusal_of_puts(said)
    if found is StoreUnavailable:
        return found(f"{act} failed: {text}. {way_on(said, 'Try again')}")
    return found(f"{act} failed: {text}. Check table.uri, the folder's or bucket's permissions, and storage.options")


def columns_of(pinned: PinnedTable, rows: RowSchema) -> tuple[Column, ...]:
    """The table's columns, with the ids that Lance has given them."""
    ids = pinned.field_ids
    return tuple(Column(name=f.name, type=format_type(f.type), field_ids=ids[f.name]) for f in rows.columns)
