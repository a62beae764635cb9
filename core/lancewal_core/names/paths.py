"""Object keys: the only place that builds or parses them.

Keys are relative to the table's root and use ``/``.  Promises:

1. ``parse_x(x(...))`` gives back the arguments.  It leaves out the making, but not that of a page.  ``parse_x`` gives
   ``None`` for every key that ``x`` would not build.  So foreign objects in a listing are passed over and never
   misread.
2. No part of a key that comes from outside (topic, topic id, log id) can leave its folder: it is a word (``words``);
   anything else raises ``InvalidInput``.
3. Prefixes end with ``/``.
4. Versioned objects sort newest first: see ``inverted_version``.
5. Two processes may choose the same name.  Objects that are swapped, or put if absent under such a name, have keys in
   the folder of the table's *making* (``made_folder``).  The contract's version 1, which names the making, is
   the exception.  All other names are new for each object.  So an object that a process of a dropped table writes
   late is never read by the table made after it.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

from lancewal_core.errors import InvalidInput
from lancewal_core.names.ids import (
    Generation,
    LogId,
    Making,
    Page,
    Position,
    Region,
    SchemaKey,
    Sequence,
    TableVersion,
    TopicId,
)
from lancewal_core.names.words import FORM, SCHEMA_KEY_FORM, TOPIC_MAX, WORD_MAX, is_schema_key, is_word

ROOT = "_lancewal/"
"""Folder for all state of lancewal, below the table's root."""
DATA = "data/"
"""Folder of Lance's data files, which also has the row files of flushes."""
DELETIONS = "_deletions/"
"""Folder of Lance's deletion files."""
INDICES = "_indices/"
TRANSACTIONS = "_transactions/"
VERSIONS = "_versions/"
"""Folder of Lance's manifests, one for each table version."""
REFS = "_refs/"
"""Folder in which Lance keeps the names of branches and tags."""
BRANCH_REFS = f"{REFS}branches/"
"""Folder in which Lance keeps the names of branches, one object each."""
TAG_REFS = f"{REFS}tags/"
TREE = "tree/"
"""Folder of Lance's branches, each in a folder of its own."""
LANCE_FOLDERS = (DATA, DELETIONS, INDICES, TRANSACTIONS, VERSIONS, REFS, TREE)
MADE = f"{ROOT}made/"
"""Folder that has a sub-folder for each making of a table."""
SUBSCRIPTIONS = f"{ROOT}subscriptions/"
"""Folder of the subscriptions of all makings.  Readers write nowhere else."""
CONFLICTS = f"{ROOT}conflicts/"
"""Folder of the objects that hold keys in conflict."""
PARCELS = f"{ROOT}parcels/"
"""Folder of parcels: objects that carry the tasks of a job to Spark's executors."""
KEY_PARTS = f"{ROOT}keys/parts/"
WAL = f"{ROOT}wal/"
"""Folder of all logs of the write-ahead log."""
FLUSHES = f"{ROOT}flushes/"
"""Folder of all flushes."""
CATALOG = f"{ROOT}catalog/"
"""Folder, below a catalog's root, of the list of tables and of the cuts."""
CATALOG_TABLES = f"{CATALOG}tables/"
"""Folder of the versions of a catalog's list of tables."""
KEPT_CUTS = f"{CATALOG}kept-cuts/"
"""Folder of a catalog's kept cuts."""
MOVING_CUTS = f"{CATALOG}moving-cuts/"
"""Folder of a catalog's moving cuts."""
_MANIFEST = re.compile(rf"{VERSIONS}([0-9]{{1,20}})\.manifest")
_DATA_FILE = re.compile(r"[A-Za-z0-9_-]+\.lance")

_U64_MAX = 2**64 - 1
_WORD = r"[a-zA-Z0-9._-]+"
_DIGITS_20 = r"[0-9]{20}"
_LOSSES_MAX = 9999
_MADE = re.compile(rf"{MADE}({_WORD})/")
_SUBSCRIPTIONS_MADE = re.compile(rf"{SUBSCRIPTIONS}made/({_WORD})/")
_SUBSCRIPTION_NAMES = re.compile(rf"{SUBSCRIPTIONS}(?:made/({_WORD})/)?names/({_DIGITS_20})\.json")
_SUBSCRIPTION = re.compile(rf"{SUBSCRIPTIONS}(?:made/({_WORD})/)?of/({_WORD})/({_DIGITS_20})\.json")
_REGION = rf"{ROOT}regions/({_WORD})/({_WORD})/([0-9]{{5,10}})/"


def inverted_version(version: int) -> str:
    """Return the 20 digits of 2^64 - 1 - ``version``.  So a listing in key order shows the newest version first."""
    return _digits_20("version", _U64_MAX - _u64("version", version))


def made_folder(making: Making | None) -> str:
    """Return the folder for the objects of this making.  A table from the first releases has no making (None) and no such
    folder.
    """
    return ROOT if making is None else f"{MADE}{_word('making', making)}/"


def making_of(key: str) -> Making | None:
    """Return the making in an object's key; None if the key has none."""
    match = _MADE.match(key)
    return Making(match[1]) if match and is_word(match[1]) else None


def _without_making(key: str) -> str:
    """Return the key that the object would have without a making."""
    making = making_of(key)
    return key if making is None else f"{ROOT}{key.removeprefix(made_folder(making))}"


# -- the table -------------------------------------------------------------------------------------------------


def is_data_file(name: str) -> bool:
    """Return whether a data file in ``DATA`` can have this name, so that the name does not lead to another folder."""
    return len(name) <= WORD_MAX and _DATA_FILE.fullmatch(name) is not None


def data_file(name: str) -> str:
    """Return the key of the table's data file with this name."""
    if not is_data_file(name):
        raise InvalidInput(f"{name[:200]!r} is not the name of a data file")
    return f"{DATA}{name}"


def branch_folder(name: str) -> str:
    """Return the folder in which Lance keeps the files that only this branch has; without a slash at its end."""
    return f"{TREE}{name}"


def parse_table_version(key: str) -> TableVersion | None:
    """Return the table version in the name of a manifest; None for any other name.

    The name has Lance's current form (20 digits that count down) or its former one.
    """
    found = _MANIFEST.fullmatch(key)
    if found is None:
        return None
    number = int(found[1])
    return TableVersion(_U64_MAX - number if len(found[1]) == 20 else number)


def contract_prefix(making: Making | None) -> str:
    """Return the folder of the contract's versions.  Version 1 of a table with a making is not in it."""
    return f"{made_folder(making)}contract/"


def contract_version(version: int, making: Making | None) -> str:
    """Return the key of a version of the contract.  Version 1 has the same key in every table, because readers learn
    from it which making of the table exists.
    """
    return f"{contract_prefix(None if version == 1 else making)}{inverted_version(version)}.json"


def parse_contract_version(key: str) -> int | None:
    version = _parse_inverted(rf"{contract_prefix(None)}({_DIGITS_20})\.json", _without_making(key))
    return None if version == 1 and making_of(key) is not None else version


def control_prefix(making: Making | None) -> str:
    return f"{made_folder(making)}control/"


def control_version(version: int, making: Making | None) -> str:
    """Return the key of a version of the control (an operator's pauses)."""
    return f"{control_prefix(making)}{inverted_version(version)}.json"


def parse_control_version(key: str) -> int | None:
    return _parse_inverted(rf"{control_prefix(None)}({_DIGITS_20})\.json", _without_making(key))


def drain_prefix(making: Making | None) -> str:
    return f"{made_folder(making)}drain/"


def drain_version(version: int, making: Making | None) -> str:
    """Return the key of a version of the drain."""
    return f"{drain_prefix(making)}{inverted_version(version)}.json"


def parse_drain_version(key: str) -> int | None:
    return _parse_inverted(rf"{drain_prefix(None)}({_DIGITS_20})\.json", _without_making(key))


def is_flush_manifest(key: str) -> bool:
    parsed = parse_flush_file(key)
    return parsed is not None and parsed[1] is FlushFile.MANIFEST


def merges_prefix(making: Making | None) -> str:
    return f"{made_folder(making)}merges/"


def merge_record(version: TableVersion, making: Making | None) -> str:
    """Return the key of the merge record: the merged positions at a table version."""
    return f"{merges_prefix(making)}{inverted_version(version)}.json"


def parse_merge_record(key: str) -> TableVersion | None:
    version = _parse_inverted(rf"{merges_prefix(None)}({_DIGITS_20})\.json", _without_making(key))
    return None if version is None else TableVersion(version)


def merge_finished(version: TableVersion, making: Making | None) -> str:
    """Return the key of the record that a merge is finished: the merge that made this table version needs no further
    work."""
    return f"{merges_prefix(making)}{inverted_version(version)}.finished.json"


def parse_merge_finished(key: str) -> TableVersion | None:
    version = _parse_inverted(rf"{merges_prefix(None)}({_DIGITS_20})\.finished\.json", _without_making(key))
    return None if version is None else TableVersion(version)


def is_conflicts_name(merge: str) -> bool:
    return re.fullmatch("[0-9a-f]{8,64}", merge) is not None


def conflicts_object(merge: str) -> str:
    """Return the key of the object with the keys in conflict after a merge; ``merge`` is the merge's uuid."""
    if not is_conflicts_name(merge):
        raise InvalidInput(f"{merge[:200]!r} is not the uuid of a merge: 8 to 64 lower-case hex digits")
    return f"{CONFLICTS}{merge}.arrow"


def parse_conflicts_object(key: str) -> str | None:
    match = re.fullmatch(rf"{CONFLICTS}([0-9a-f]{{8,64}})\.arrow", key)
    return None if match is None else match[1]


def loads_prefix(making: Making | None) -> str:
    """Return the prefix of the records of bulk loads' beginnings."""
    return f"{made_folder(making)}loads/"


def load_record(name: str, making: Making | None) -> str:
    """Return the key of the record with the beginning of the bulk load of this name."""
    return f"{loads_prefix(making)}{_word('load', name)}.json"


def parse_load_record(key: str) -> str | None:
    match = re.fullmatch(rf"{loads_prefix(None)}({_WORD})\.json", _without_making(key))
    return match[1] if match and is_word(match[1]) else None


def subscriptions_prefix(making: Making | None) -> str:
    """Return the folder of the subscriptions of one making."""
    made = "" if making is None else f"made/{_word('making', making)}/"
    return f"{SUBSCRIPTIONS}{made}"


def subscription_names_prefix(making: Making | None) -> str:
    return f"{subscriptions_prefix(making)}names/"


def subscription_names(version: int, making: Making | None) -> str:
    """Return the key of a version of the list of subscriptions."""
    return f"{subscription_names_prefix(making)}{inverted_version(version)}.json"


def parse_subscription_names(key: str) -> int | None:
    match = _SUBSCRIPTION_NAMES.fullmatch(key)
    return None if match is None or (match[1] and not is_word(match[1])) else _uninverted(match[2])


def subscription_prefix(id: str, making: Making | None) -> str:
    """Return the folder of the versions of one subscription.  ``id_`` is new for each subscription, whatever its
    name."""
    return f"{subscriptions_prefix(making)}of/{_word('subscription id', id)}/"


def subscription_version(id: str, version: int, making: Making | None) -> str:
    return f"{subscription_prefix(id, making)}{inverted_version(version)}.json"


def parse_subscription_version(key: str) -> tuple[str, int] | None:
    match = _SUBSCRIPTION.fullmatch(key)
    if match is None or (match[1] and not is_word(match[1])) or not is_word(match[2]):
        return None
    version = _uninverted(match[3])
    return None if version is None else (match[2], version)


def subscriptions_making(key: str) -> Making | None:
    """Return the making of an object of subscriptions; None if its table has none."""
    match = _SUBSCRIPTIONS_MADE.match(key)
    return Making(match[1]) if match and is_word(match[1]) else None


def store_proof(way: str) -> str:
    """Return the key of the proof that the store supports put-if-absent.  ``way`` is the SHA-256 of the address,
    options and environment by which a process reaches the store.
    """
    if re.fullmatch("[0-9a-f]{64}", way) is None:
        raise InvalidInput(f"{way[:200]!r} is not a SHA-256 in hex")
    return f"{ROOT}store/{way}.json"


def parse_store_proof(key: str) -> str | None:
    match = re.fullmatch(rf"{ROOT}store/([0-9a-f]{{64}})\.json", key)
    return None if match is None else match[1]


def probe(name: str) -> str:
    """Return the key of an object that a process puts and deletes to check that the store supports put-if-absent."""
    return f"{ROOT}probe/{_word('probe', name)}"


def parse_probe(key: str) -> str | None:
    match = re.fullmatch(rf"{ROOT}probe/({_WORD})", key)
    return match[1] if match and is_word(match[1]) else None


def parcel_part(name: str, part: int) -> str:
    return f"{PARCELS}{_word('parcel', name)}/{part:05d}"


def parse_parcel_part(key: str) -> tuple[str, int] | None:
    match = re.fullmatch(rf"{PARCELS}({_WORD})/([0-9]{{5,10}})", key)
    if not match or not is_word(match[1]) or match[2] != f"{int(match[2]):05d}":
        return None
    return match[1], int(match[2])


# -- the key index ---------------------------------------------------------------------------------------------


def key_catalog_prefix(making: Making | None) -> str:
    return f"{made_folder(making)}keys/catalog/"


def key_catalog_version(version: int, making: Making | None) -> str:
    """Return the key of a version of the catalog of key runs."""
    return f"{key_catalog_prefix(making)}{inverted_version(version)}.json"


def parse_key_catalog_version(key: str) -> int | None:
    return _parse_inverted(rf"{key_catalog_prefix(None)}({_DIGITS_20})\.json", _without_making(key))


def key_part(name: str) -> str:
    """Return the key of a part of a key run; ``name`` is new for each part."""
    return f"{KEY_PARTS}{_word('key part', name)}.arrow"


def parse_key_part(key: str) -> str | None:
    match = re.fullmatch(rf"{KEY_PARTS}({_WORD})\.arrow", key)
    return match[1] if match and is_word(match[1]) else None


# -- catalogs, whose root is a folder of tables ----------------------------------------------------------------


def catalog_tables_version(version: int) -> str:
    """Return the key of a version of the list of tables."""
    return f"{CATALOG_TABLES}{inverted_version(version)}.json"


def parse_catalog_tables_version(key: str) -> int | None:
    return _parse_inverted(rf"{CATALOG_TABLES}({_DIGITS_20})\.json", key)


def kept_cut(name: str) -> str:
    """Return the key of a kept cut."""
    return f"{KEPT_CUTS}{_word('cut', name)}.json"


def parse_kept_cut(key: str) -> str | None:
    match = re.fullmatch(rf"{KEPT_CUTS}({_WORD})\.json", key)
    return match[1] if match and is_word(match[1]) else None


def moving_cut_prefix(name: str) -> str:
    """Return the folder of the versions of one moving cut."""
    return f"{MOVING_CUTS}{_word('cut', name)}/"


def moving_cut_version(name: str, version: int) -> str:
    """Return the key of a version of a moving cut."""
    return f"{moving_cut_prefix(name)}{inverted_version(version)}.json"


def parse_moving_cut_version(key: str) -> tuple[str, int] | None:
    match = re.fullmatch(rf"{MOVING_CUTS}({_WORD})/({_DIGITS_20})\.json", key)
    version = None if match is None or not is_word(match[1]) else _uninverted(match[2])
    return None if match is None or version is None else (match[1], version)


# -- writer schemas --------------------------------------------------------------------------------------------


def writer_schemas_prefix(making: Making | None) -> str:
    """Return the folder of all writer schemas."""
    return f"{made_folder(making)}schemas/"


def writer_schema_prefix(key: SchemaKey, making: Making | None) -> str:
    """Return the folder of the versions of one writer schema."""
    if not is_schema_key(key):
        raise InvalidInput(f"{key[:200]!r} is not the key of a schema: expected {SCHEMA_KEY_FORM}")
    return f"{writer_schemas_prefix(making)}{key}/"


def writer_schema_version(key: SchemaKey, version: int, making: Making | None) -> str:
    return f"{writer_schema_prefix(key, making)}{inverted_version(version)}.json"


def parse_writer_schema_version(key: str) -> tuple[SchemaKey, int] | None:
    match = re.fullmatch(rf"{writer_schemas_prefix(None)}({_WORD})/({_DIGITS_20})\.json", _without_making(key))
    version = None if match is None or not is_schema_key(match[1]) else _uninverted(match[2])
    return None if match is None or version is None else (SchemaKey(match[1]), version)


# -- logs ------------------------------------------------------------------------------------------------------


def log_prefix(log: LogId) -> str:
    """Return the folder of the segments of one log."""
    return f"{WAL}{_word('log id', log)}/"


@lru_cache(4_096)  # each generation names one
def parse_log_prefix(key: str) -> LogId | None:
    match = re.fullmatch(rf"{WAL}({_WORD})/", key)
    return LogId(match[1]) if match and is_word(match[1]) else None


def wal_segment(log: LogId, sequence: Sequence) -> str:
    """Return the key of a segment or a fence.  Both have the same key, so that only one of them can be written."""
    return f"{log_prefix(log)}{_digits_20('sequence', sequence)}.arrow"


def parse_wal_segment(key: str) -> tuple[LogId, Sequence] | None:
    match = re.fullmatch(rf"{WAL}({_WORD})/({_DIGITS_20})\.arrow", key)
    if not match or not is_word(match[1]) or int(match[2]) > _U64_MAX:
        return None
    return LogId(match[1]), Sequence(int(match[2]))


def wal_bundle(log: LogId, first: Sequence, last: Sequence) -> str:
    """Return the key of a bundle: copies of the segments from ``first`` to ``last``.

    In key order the bundle comes right after the segment ``last``.  So a listing that begins after any segment shows
    all bundles with later segments.  The object after the bundle is the next segment, if there is one.
    """
    if first > last:
        raise InvalidInput(f"a bundle of log {log} cannot go from {first} to {last}")
    return f"{log_prefix(log)}{_digits_20('sequence', last)}.bundle-{_digits_20('sequence', first)}.arrow"


def parse_wal_bundle(key: str) -> tuple[LogId, Sequence, Sequence] | None:
    """Return the log, and the first and last sequence number, of a bundle; None for any other key."""
    match = re.fullmatch(rf"{WAL}({_WORD})/({_DIGITS_20})\.bundle-({_DIGITS_20})\.arrow", key)
    if not match or not is_word(match[1]) or not int(match[3]) <= int(match[2]) <= _U64_MAX:
        return None
    return LogId(match[1]), Sequence(int(match[3])), Sequence(int(match[2]))


# -- pages -----------------------------------------------------------------------------------------------------


def pages_prefix(making: Making | None) -> str:
    """Return the folder of all pages."""
    return f"{made_folder(making)}pages/"


def page_prefix(page: Page) -> str:
    """Return the folder of the versions of one page."""
    if not 0 <= page.number < 2**31:
        raise InvalidInput(f"{page.number} of topic {page.topic!r} cannot be the number of a page")
    topic, topic_id = check_topic(page.topic), _word("topic id", page.topic_id)
    return f"{pages_prefix(page.making)}{topic}/{topic_id}/{page.number:05d}/"


def page_version(page: Page, version: int) -> str:
    """Return the key of a version of a page, which has the states of its regions."""
    return f"{page_prefix(page)}{inverted_version(version)}.binpb"


def parse_page_version(key: str) -> tuple[Page, int] | None:
    match = re.fullmatch(
        rf"{pages_prefix(None)}({_WORD})/({_WORD})/([0-9]{{5,10}})/({_DIGITS_20})\.binpb", _without_making(key)
    )
    found = _numbered(match)
    if found is None:
        return None
    of = found[0]
    return Page(of.topic, of.topic_id, of.partition, making_of(key)), _U64_MAX - found[1]


# -- regions ---------------------------------------------------------------------------------------------------


def regions_prefix(making: Making | None) -> str:
    """Return the folder of all regions."""
    return f"{made_folder(making)}regions/"


def topic_regions_prefix(region: Region, making: Making | None) -> str:
    """Return the folder of all regions of the topic of ``region``."""
    topic, topic_id = check_topic(region.topic), _word("topic id", region.topic_id)
    return f"{regions_prefix(making)}{topic}/{topic_id}/"


def region_prefix(region: Region, making: Making | None) -> str:
    if not 0 <= region.partition < 2**31:
        raise InvalidInput(f"partition {region.partition} of topic {region.topic!r} is not a Kafka partition number")
    return f"{topic_regions_prefix(region, making)}{region.partition:05d}/"


@lru_cache(4_096)  # each segment names those of its entries
def parse_region(name: str) -> Region | None:
    """Return the region with this ``name``; None if no region can have this name."""
    match = re.fullmatch(rf"({_WORD})/({_WORD})/(0|[1-9][0-9]{{0,9}})", name)
    return None if match is None else _region_of(match)


def check_topic(topic: str) -> str:
    """Return ``topic``.  Raises ``InvalidInput`` for a name that Kafka does not allow."""
    if len(topic) > TOPIC_MAX:
        raise InvalidInput(f"topic name of {len(topic)} characters is not allowed: Kafka's limit is {TOPIC_MAX}")
    return _word("topic", topic)


def history_prefix(region: Region, making: Making | None) -> str:
    return f"{region_prefix(region, making)}history/"


def history_page(region: Region, first_generation: Generation, making: Making | None) -> str:
    return f"{history_prefix(region, making)}{_digits_20('generation', first_generation)}.binpb"


def parse_history_page(key: str) -> tuple[Region, Generation] | None:
    found = _numbered(re.fullmatch(rf"{_REGION}history/({_DIGITS_20})\.binpb", _without_making(key)))
    return None if found is None else (found[0], Generation(found[1]))


def losses_prefix(region: Region, making: Making | None) -> str:
    return f"{region_prefix(region, making)}losses/"


def loss_record(region: Region, first: Position, making: Making | None, number: int = 1) -> str:
    """Return the key of an accepted loss that begins at the position ``first``.

    ``number`` counts, from 1, the losses accepted at that position.
    """
    if not 1 <= number <= _LOSSES_MAX:
        raise InvalidInput(f"losses that begin at one position are numbered from 1 to {_LOSSES_MAX}, not {number}")
    behind = "" if number == 1 else f"-{number}"
    return f"{losses_prefix(region, making)}{_digits_20('position', first)}{behind}.json"


def parse_loss_record(key: str) -> tuple[Region, Position, int] | None:
    match = re.fullmatch(rf"{_REGION}losses/({_DIGITS_20})(?:-([1-9][0-9]{{0,3}}))?\.json", _without_making(key))
    found = _numbered(match)
    if match is None or found is None or match[5] == "1":
        return None
    return found[0], Position(found[1]), int(match[5] or 1)


# -- flushes ---------------------------------------------------------------------------------------------------


class FlushFile(Enum):
    """Objects in the folder of a flush."""

    MANIFEST = "manifest.json"
    DELETES = "deletes.arrow"
    PATCHES = "patches.arrow"


def flush_prefix(name: str) -> str:
    """Return the folder of one attempt to flush generations; ``name`` is new for each attempt."""
    return f"{FLUSHES}{_word('flush', name)}/"


def flush_file(name: str, file: FlushFile) -> str:
    return f"{flush_prefix(name)}{file.value}"


_FLUSH_FILE = re.compile(rf"{FLUSHES}({_WORD})/({'|'.join(re.escape(file.value) for file in FlushFile)})")


def parse_flush_file(key: str) -> tuple[str, FlushFile] | None:
    match = _FLUSH_FILE.fullmatch(key)
    return (match[1], FlushFile(match[2])) if match and is_word(match[1]) else None


# -- parts of keys ---------------------------------------------------------------------------------------------


def _word(what: str, text: str) -> str:
    if not is_word(text):
        raise InvalidInput(f"{what} {text[:300]!r} cannot be part of an object key: use {FORM}")
    return text


def _u64(what: str, number: int) -> int:
    if not 0 <= number <= _U64_MAX:
        raise InvalidInput(f"{what} {number} cannot be part of an object key: it is not an unsigned 64-bit number")
    return number


def _digits_20(what: str, number: int) -> str:
    return f"{_u64(what, number):020d}"


def _parse_inverted(pattern: str, key: str) -> int | None:
    match = re.fullmatch(pattern, key)
    return None if match is None else _uninverted(match[1])


def _uninverted(digits: str) -> int | None:
    return _U64_MAX - int(digits) if int(digits) <= _U64_MAX else None


def _region_of(match: re.Match[str]) -> Region | None:
    """Return the region whose topic, topic id and partition are groups 1 to 3 of the match; None if no region can
    have them."""
    if not is_word(match[1]) or not is_word(match[2]) or len(match[1]) > 249:
        return None
    partition = int(match[3])
    return Region(match[1], TopicId(match[2]), partition) if partition < 2**31 else None


def _numbered(match: re.Match[str] | None) -> tuple[Region, int] | None:
    """Return the region in groups 1 to 3 of the match and the number in group 4; None if ``region_prefix`` would not
    write these groups."""
    region = None if match is None else _region_of(match)
    if match is None or region is None or match[3] != f"{region.partition:05d}" or int(match[4]) > _U64_MAX:
        return None
    return region, int(match[4])
