"""A contract as text for people, and the differences between two contracts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lancewal_core.cli.output import aligned, one_line
from lancewal_core.errors import counted

if TYPE_CHECKING:
    from lancewal_core.rows.carry import Tree
    from lancewal_core.table.contract import Contract


def contract_text(contract: Contract, *, made: bool = True) -> str:
    """Return one line for each term, then one for each column.

    If ``made`` is false, leave out the table's UUID, which is drawn when the table is made."""
    said = {**_said(contract), **({} if made else {"contract": f"version {contract.version}"})}
    columns = dict(_columns(contract).values())
    lines = aligned([*said.items(), *columns.items()])
    return "\n".join([*lines[: len(said)], "", *lines[len(said) :]])


def changes_text(before: Contract, after: Contract) -> str:
    """Return one line for each term or column that differs: its name, its old value, and its new value."""
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


def _columns(contract: Contract) -> Mapping[int, tuple[str, str]]:
    """Return the name of each column and a text about it, by its first id, or by its place while it has no id."""
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
    """Return the path of each field by its first id, as ``address.zip``.  Items of lists have no name in a path."""
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


def _passed_over(contract: Contract) -> list[str]:
    """Return the names of dropped fields that are passed over.  A member counts while its struct is there."""
    paths = _paths(contract)
    fields = [field for field in contract.dropped if not field.forgotten]
    found = [f"{paths[f.within]}.{f.name}" for f in fields if f.within is not None and f.within in paths]
    return list(dict.fromkeys([*(f.name for f in fields if f.within is None), *found]))


def _said(contract: Contract) -> Mapping[str, str]:
    """Return the text of each term by the term's name, one line each, without the columns."""
    starts = ["earliest" if position < 0 else str(position) for position in contract.start]
    found = {
        "contract": f"version {contract.version}, table {contract.table_uuid}",
        "place": contract.place or "not known",
        "topic": f"{contract.topic} ({contract.topic_id}), {counted(contract.partitions, 'partition')}",
        "consumer group": contract.group_id or "that of the first ingest",
        "primary key": ", ".join(contract.primary_key),
        "region key": ", ".join(contract.region_key) or "the bytes of the record key",
        "record keys": f"{contract.key_format}, partitioned by {contract.partitioner}",
        "start": starts[0] if len(set(starts)) == 1 else ", ".join(starts),
        "values": f"{contract.value_format}, at most {contract.record_bytes_max} bytes, "
        + ("patches allowed" if contract.patches else "no patches"),
        "bad records": contract.on_bad_record,
        "wrong format": contract.on_wrong_format,
        "misrouted": contract.on_misrouted,
        "unknown columns": contract.on_unknown_column,
        "dead letters": contract.dead_letters,
        "history window": f"{contract.history_window_s} s",
        "version window": f"{contract.version_window_s} s",
        "freshness target": f"{contract.freshness_target_s:g} s",
        "rows expire": "never" if contract.ttl is None else f"{contract.ttl.seconds} s after {contract.ttl.column}",
    }
    passed_over = _passed_over(contract)
    if passed_over:
        found["names passed over"] = ", ".join(passed_over)
    return {name: one_line(text) for name, text in found.items()}
