"""A contract as text for people, and the differences between two contracts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lancewal_core.cli.output import aligned, one_line
from lancewal_core.errors import counted

if TYPE_CHECKING:
    from lancewal_core.table.contract import Contract


def contract_text(contract: Contract, *, made: bool = True) -> str:
    """Return one line for each term, then one for each column.

    If ``made`` is false, leave out the table's UUID, which is drawn when the table is made."""
    said = {**_said(contract), **({} if made else {"contract": f"version {contract.version}"})}
    columns = {one_line(column.name): one_line(column.type) for column in contract.columns}
    lines = aligned([*said.items(), *columns.items()])
    return "\n".join([*lines[: len(said)], "", *lines[len(said) :]])


def changes_text(before: Contract, after: Contract) -> str:
    """Return one line for each term that differs: its name, its old value, and its new value."""
    was, becomes = _said(before), _said(after)
    return "\n".join(aligned([(name, was[name], f"-> {text}") for name, text in becomes.items() if text != was[name]]))


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
        "start": starts[0] if len(set(starts)) == 1 else ", ".join(starts),
        "values": f"{contract.value_format}, at most {contract.record_bytes_max} bytes, "
        + ("patches allowed" if contract.patches else "no patches"),
        "bad records": contract.on_bad_record,
        "misrouted": contract.on_misrouted,
        "unknown columns": contract.on_unknown_column,
        "dead letters": contract.dead_letters,
        "history window": f"{contract.history_window_s} s",
        "version window": f"{contract.version_window_s} s",
        "freshness target": f"{contract.freshness_target_s:g} s",
        "rows expire": "never" if contract.ttl is None else f"{contract.ttl.seconds} s after {contract.ttl.column}",
    }
    return {name: one_line(text) for name, text in found.items()}
