"""A contract as text for people, and the differences between two contracts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, get_args

from lancewal_core.cli.output import aligned, one_line
from lancewal_core.errors import counted
from lancewal_core.wal.writer_schemas import SchemaKind

if TYPE_CHECKING:
    from lancewal_core.rows.carry import Tree
    from lancewal_core.table.contract import Contract


def lacking_text(cut: str) -> str:
    """Return the sentence about a kept cut that lacks a table because the table's folder was moved."""
    return f"cut {cut} lacks the table from now on: `lancewal cut show {cut}` says so, and `lancewal cut drop {cut}` drops it"


def contract_text(contract: Contract, *, made: bool = True) -> str:
    """Return one line for each term, then one for each column.

    ``made``: False if the contract is not stored yet.  The table's UUID is then left out, since storing the contract
    draws another one.
    """
    said = {**_said(contract), **({} if made else {"contract": f"version {contract.version}"})}
    columns = dict(_columns(contract).values())
    lines = aligned([*said.items(), *columns.items()])
    return "\n".join([*lines[: len(said)], "", *lines[len(said) :]])


def changes_text(before: Contract, after: Contract) -> str:
    """Return one line for each term or column that differs: its name, its value in ``before``, and its value in
    ``after``."""
    was, becomes = _said(before), _said(after)
    both = ((name, was.get(name, "none"), becomes.get(name, "none")) for name in dict.fromkeys([*was, *becomes]))
    found = [(name, old, f"-> {new}") for name, old, new in both if old != new]
    old, new = _columns(before), _columns(after)
    for id_ in dict.fromkeys([*old, *new]):
        if old.get(id_) == new.get(id_):
            continue
        name, text = old.get(id_, ("", "no column"))
        new_name, new_text = new.get(id_, ("", "dropped"))
        found.append(
            (
                name or new_name,
                text,
                f"-> {new_text if new_name in ('', name) or not name else f'{new_name}: {new_text}'}",
            )
        )
    return "\n".join(aligned(found))


def moved_names(before: Contract, after: Contract) -> list[str]:
    """Return a sentence for each name of a column or member that stands for another field in records under ``after``
    than under ``before``."""
    then, now = _meanings(before), _meanings(after)
    was, is_ = ({id_: name for (_, name), (id_, present) in found.items() if present} for found in (then, now))
    found = []
    for (outer, name), (id_, _) in now.items():
        past = then.get((outer, name))
        if past is None or past[0] == id_ or id_ is None:
            continue
        target = f"the field that was called {was[id_]!r}" if id_ in was else "a field that was added"
        if past[0] is None:
            meant = "this name was passed over"
        else:
            meant = f"the field that is now called {is_[past[0]]!r}" if past[0] in is_ else "a field that was dropped"
        found.append(f"the name {name!r} in a record now means {target}; before, {meant}")
    return found


def _meanings(contract: Contract) -> Mapping[tuple[int | None, str], tuple[int | None, bool]]:
    """Return for each name that a record may use the field that it stands for, and whether this is the field's current
    name.  Keys are pairs of the struct in which the field is (None: a column) and the name.  Fields and structs are
    given by their first field id.  The name of a dropped field, which ingest ignores, stands for None."""
    from lancewal_core.rows.carry import trees

    found = dict[tuple[int | None, str], tuple[int | None, bool]]()
    for dropped in contract.dropped:
        if not dropped.forgotten:
            found[dropped.within, dropped.name] = None, False
    filled = {column.name for column in contract.columns if column.metadata is not None}  # no record names these
    columns = [tree for tree in trees(contract.record_rows) if tree.name not in filled]
    levels = [(None, columns), *((tree.id, tree.within) for column in columns for tree in column.all())]
    for within, fields in levels:
        ids = {tree.id for tree in fields}
        found |= {(within, former.name): (former.id, False) for former in contract.former_names if former.id in ids}
        found |= {(within, tree.name): (tree.id, True) for tree in fields}
    return found


def _columns(contract: Contract) -> Mapping[int, tuple[str, str]]:
    """Return the name of each column and a text about it, by its first field id.  In a contract that is not stored yet,
    columns have no ids, and their positions in the list are the keys."""
    former: dict[int, list[str]] = {}
    for name in contract.former_names:
        former.setdefault(name.id, []).append(name.name)
    paths, found = _paths(contract), {}
    for place, column in enumerate(contract.columns):
        more = [f"default {column.default}"] if column.default is not None else []
        more += [] if column.widening is None else [f"being widened to {column.widening.type}"]
        for id_ in column.ids:
            known = f"also known as {', '.join(former.get(id_, ()))}"
            more += [known if id_ == column.ids[0] else f"{paths[id_]} {known}"] if id_ in former else []
        found[column.ids[0] if column.ids else place] = (
            one_line(column.name),
            one_line(", ".join([column.type + column.source.text, *more])),
        )
    return found


def _paths(contract: Contract) -> Mapping[int, str]:
    """Return the path of each field, such as ``address.zip``, by its first field id.  Items of lists have no name in a
    path."""
    import pyarrow as pa

    from lancewal_core.rows.carry import tree_of
    from lancewal_core.rows.column_types import parse_type

    found: dict[int, str] = {}

    def walk(tree: Tree, path: str) -> None:
        found[tree.id] = path
        for member in tree.within:
            walk(member, path if pa.types.is_list(tree.type) else f"{path}.{member.name}")

    for column in contract.columns:
        if column.ids:  # a contract that is not stored has none
            tree = tree_of(pa.field(column.name, parse_type(column.type)), column.ids)
            walk(tree, tree.name)
    return found


def _policies(contract: Contract) -> Mapping[str, str]:
    """Return each policy of the contract by its kind in ``--on``, with blanks for hyphens.  Policies that can concern
    no record of the table are left out."""
    formats = {contract.value_format, contract.key_format}
    met = {
        "on_other_record": contract.value_record is not None,
        "on_unknown_schema": not formats.isdisjoint(get_args(SchemaKind)),
        **dict.fromkeys(("on_truncate", "on_unavailable_value", "snapshot_rows"), contract.envelope != "none"),
    }
    named = [term for term in type(contract).model_fields if term.startswith("on_") or term == "snapshot_rows"]
    shown = (term for term in named if met.get(term, True))
    return {term.removeprefix("on_").replace("_", " "): str(getattr(contract, term)) for term in shown}


def _enveloped(contract: Contract) -> str:
    return "" if contract.envelope == "none" else f", in the envelope {contract.envelope}"


def _passed_over(contract: Contract) -> list[str]:
    """Return the names of dropped fields that ingest ignores in records.  A member of a struct is listed only while the
    struct exists."""
    paths = _paths(contract)
    fields = [field for field in contract.dropped if not field.forgotten]
    found = [f"{paths[f.within]}.{f.name}" for f in fields if f.within is not None and f.within in paths]
    return list(dict.fromkeys([*(f.name for f in fields if f.within is None), *found]))


def _forms(contract: Contract) -> str:
    from lancewal_core.record_keys.key_format import has_key_forms

    if not has_key_forms(contract.key_format):
        return ""
    return f", schemas: {', '.join(contract.key_forms) or 'that of the first record'}"


def _record(contract: Contract) -> str:
    return "" if contract.value_record is None else f" of records {contract.value_record!a}"


def _said(contract: Contract) -> Mapping[str, str]:
    """Return the texts that show the contract's terms, without columns, by the terms' names.  Each text is one line."""
    starts = ["earliest" if position < 0 else str(position) for position in contract.start]
    found = {
        "contract": f"version {contract.version}, table {contract.table_uuid}",
        "name": contract.name or "none",
        "place": contract.place or "not known",
        "topic": f"{contract.topic} ({contract.topic_id}), {counted(contract.partitions, 'partition')}",
        "consumer group": contract.group_id or "that of the first ingest",
        "primary key": ", ".join(contract.primary_key),
        "region key": ", ".join(contract.region_key) or "the bytes of the record key",
        "record keys": f"{contract.key_format}, partitioned by {contract.partitioner}{_forms(contract)}",
        "start": starts[0] if len(set(starts)) == 1 else ", ".join(starts),
        "values": f"{contract.value_format}{_record(contract)}{_enveloped(contract)}, at most "
        f"{contract.record_bytes_max} bytes, " + ("patches allowed" if contract.patches else "no patches"),
        **_policies(contract),
        "dead letters": contract.dead_letters,
        "history window": f"{contract.history_window_s} s",
        "version window": f"{contract.version_window_s} s",
        "subscriptions": f"hold for at most {contract.subscription_hold_s_max} s",
        "freshness target": f"{contract.freshness_target_s:g} s",
        "rows expire": "never" if contract.ttl is None else f"{contract.ttl.seconds} s after {contract.ttl.column}",
    }
    passed_over = _passed_over(contract)
    if passed_over:
        found["names passed over"] = ", ".join(passed_over)
    return {name: one_line(text) for name, text in found.items()}
