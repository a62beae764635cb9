"""From a Lance table to a lancewal table: identity, checkpoint, contract.  Shared by ``create`` and ``attach``.

Steps, each done once however often it is repeated
 1. ``lancewal.table_uuid`` in the Lance table's config, unless there is one.  Of two concurrent writers of a config
    key Lance lets one win; the other takes the winner's.
 2. The checkpoint ``merges/<newest version>`` "nothing merged": walks for watermarks end there and never read what the
    table was before (a restore or an overwrite long ago).
 3. Contract version 1 by put-if-absent.  From here on the table is one; nothing before this is looked at by anybody.

After a crash between two steps the same command continues.  What is left after giving up is a Lance table with a config
key and a checkpoint, which mean nothing without a contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never
from uuid import uuid4

import pyarrow as pa

from lancewal_core import paths
from lancewal_core.column_types import format_type
from lancewal_core.contract import FAMILY, Column, Contract, decode_contract, encode_contract
from lancewal_core.error_text import first_line, no_way_in, way_on
from lancewal_core.errors import LancewalError, StoreNotWritable, StoreUnavailable, TableExists
from lancewal_core.ids import TableVersion
from lancewal_core.rows import RowSchema, check_region_key, check_row_schema
from lancewal_core.settings_sections import TableSettings
from lancewal_core.store import Done, Lost, ObjectStore, Unknown, put_once
from lancewal_core.table import PinnedTable
from lancewal_core.table_lance import LancePinnedTable, LanceTable
from lancewal_core.ttl import Ttl
from lancewal_core.versioned import newest_version
from lancewal_core.watermarks import NOTHING_MERGED, TABLE_UUID, Watermarks
from lancewal_flusher.topic_checks import TopicState


def declared_ttl(settings: TableSettings) -> Ttl | None:
    """What the settings say of expiry."""
    return None if settings.ttl_s is None else Ttl(settings.ttl_column, settings.ttl_s)


def declared_keys(columns: pa.Schema, settings: TableSettings) -> RowSchema:
    """Columns with the keys that the settings declare; ``SchemaError`` if they cannot be a table."""
    rows = RowSchema(columns, settings.primary_key, settings.region_key)
    check_row_schema(rows)
    check_region_key(rows, settings.region_encoding)
    return rows


def needed_region_key(settings: TableSettings) -> tuple[str, ...]:
    """The setting that says what producers key by, where that is columns."""
    return ("table.region_key",) if settings.region_encoding == "canonical" else ()


def refuse_contract(store: ObjectStore, uri: str) -> None:
    """``TableExists`` if the folder already has a contract; ``StoreNotWritable`` if the store lets nobody in."""
    try:
        found = newest_version(store, FAMILY)
    except StoreUnavailable as error:
        raise store_error(error, f"looking for a contract at {uri}") from error
    if found is not None:
        contract = decode_contract(found.data, paths.contract_version(found.version))
        raise TableExists(
            f"{uri} is already a lancewal table: topic {contract.topic}, contract version {contract.version}; "
            "see `lancewal table show`"
        )


def identify(table: LanceTable) -> tuple[LancePinnedTable, str]:
    """Step 1: the version that carries the table's uuid, and the uuid."""
    pinned = table.newest()
    for _ in range(3):
        uuid = pinned.config.get(TABLE_UUID)
        if uuid is not None:
            return pinned, uuid
        try:
            pinned.dataset.update_config({TABLE_UUID: str(uuid4())})
        except OSError as error:
            if "incompatible transaction" not in str(error).lower():
                raise store_error(error, f"setting {TABLE_UUID} in the config of {table.uri}") from error
        pinned = table.newest()
    raise StoreUnavailable(f"others keep changing the config of {table.uri}; run the same command again")


def register(
    store: ObjectStore,
    table: LanceTable,
    pinned: LancePinnedTable,
    uuid: str,
    rows: RowSchema,
    settings: TableSettings,
    topic: TopicState,
    start: Sequence[int],
) -> Contract:
    """Steps 2 and 3, for a table whose newest version is ``pinned``."""
    contract = Contract(
        table_uuid=uuid,
        topic=topic.topic,
        topic_id=topic.topic_id,
        partitions=topic.partitions,
        primary_key=rows.primary_key,
        region_key=rows.region_key,
        region_encoding=settings.region_encoding,
        start=tuple(start),
        columns=_columns(pinned, rows),
        patches=settings.patches,
        misrouted=settings.misrouted,
        record_bytes_max=int(settings.record_bytes_max),
        history_window_s=settings.history_window_s,
        grace_s=settings.grace_s,
        freshness_target_s=settings.freshness_target_s,
        ttl_column=settings.ttl_column or None,
        ttl_s=settings.ttl_s,
    )
    # Step 2
    version = TableVersion(pinned.version)
    Watermarks(store, table).record(NOTHING_MERGED, version, "checkpoint")
    if store.get(paths.merge_record(version)) is None:
        raise StoreNotWritable(
            f"{paths.merge_record(version)} could not be written into {table.uri}: check that there is room, that the "
            "folder is writable and that the store's credentials allow PutObject, then run the same command again"
        )
    # Step 3
    key = paths.contract_version(contract.version)
    outcome = put_once(store, key, encode_contract(contract))
    match outcome:
        case Done():
            return contract
        case Lost():
            raise TableExists(f"{table.uri} was made a lancewal table by somebody else at the same time")
        case Unknown(cause=cause):
            raise StoreUnavailable(f"no verdict on writing {key}: {cause}; run the same command again", object=key)
        case _:
            assert_never(outcome)


def store_error(error: BaseException, act: str) -> LancewalError:
    """What a failure of the store means: a person must act, or try again."""
    text = first_line(error)
    # A store's reason, such as NoSuchBucket, may stand in a later line.
    if no_way_in(f"{error} {error.__cause__}"):
        return StoreNotWritable(
            f"{act} failed: {text}; check table.uri, the folder's or bucket's permissions, and store.options"
        )
    return StoreUnavailable(f"{act} failed: {text}. {way_on(str(error), 'Try again')}")


def _columns(pinned: PinnedTable, rows: RowSchema) -> tuple[Column, ...]:
    ids = pinned.field_ids
    return tuple(Column(name=f.name, type=format_type(f.type), field_ids=ids[f.name]) for f in rows.columns)
