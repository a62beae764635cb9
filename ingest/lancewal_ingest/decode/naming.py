"""Names and forms of columns in the records of a contract, and values of columns that records leave out.

A column may have another name in records than in the table (``Column.field``).  The newest name of a column in
records is its *present name*.  Members of structs have present names too.

After a change of columns, records may still use a *former* name of a column, which means the column.  The name of a
*dropped* column is passed over.  If the contract ignores unknown columns, *unknown* names are passed over too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

import pyarrow as pa

from lancewal_core.rows.carry import Tree, trees
from lancewal_core.rows.schema import RowSchema
from lancewal_core.settings.sections import JsonForm
from lancewal_core.table.contract import Contract

Form = JsonForm | Literal["float_name"]
"""Lenient form in which records may write the values of a column, beside the strict one.  ``float_name``: NaN and
infinity are written as their names.  No contract can ask for this form: it is used for Kafka Connect's JSON with
schemas."""


class OtherName(NamedTuple):
    """A name in records that is counted: it is not the present name of a column, or a cell of the column got no
    value.
    """

    use: Literal["former", "dropped", "unknown", "not_utf8", "unavailable"]
    """Why the name is counted.  ``former``, ``dropped`` and ``unknown`` names are no present names.  ``not_utf8``:
    metadata that the column of this name cannot hold, so that the cell is null (``metadata``).  ``unavailable``: a
    value of the column that a connector could not read (``envelopes``)."""
    path: str
    """Path of the name: the names of the structs that hold the member, and the member's name, joined by dots.  A
    struct column has its present name in JSON, and the table's name in formats whose schemas have fields."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names that are accepted at one level: of the columns, or of the members of one struct."""

    present: Mapping[str, Names | None]
    """Present name of each column or member, with the names of its members; None if it is neither a struct nor a list
    of structs."""
    former: Mapping[str, str] = field(default_factory=dict)
    """Present name of a column or member, by each of its former names."""
    dropped: frozenset[str] = frozenset()
    ignores: bool = False
    """Whether unknown names are passed over."""

    @property
    def only_present(self) -> bool:
        """Whether only present names are accepted, at this level and in structs within."""
        within = all(names is None or names.only_present for names in self.present.values())
        return within and not (self.former or self.dropped or self.ignores)

    def use_of(self, name: str) -> OtherName | None:
        """Return why a name that is not a present name is accepted; None if it is refused."""
        if name in self.former:
            return OtherName("former", name)
        if name in self.dropped:
            return OtherName("dropped", name)
        return OtherName("unknown", name) if self.ignores else None

    def fields_of(self, names: Iterable[str]) -> list[str]:
        """Return the present names of the columns or members that ``names`` refer to.  Dropped and unknown names are
        left out.
        """
        called = (self.former.get(name, name) for name in names)
        return [name for name in called if name in self.present]

    def twice(self, names: Collection[str]) -> str | None:
        """Return a former name in ``names`` whose column or member also occurs under another name; None if there is
        none.
        """
        taken = {name for name in names if name in self.present}
        for name in names:
            if name in self.former:
                present = self.former[name]
                if present in taken:
                    return name
                taken.add(present)
        return None


class Advice(Protocol):
    """Advice in messages: how to set up the writer of records so that a column can take their values.  Empty if there
    is no advice.
    """

    def of_value(self, column: pa.DataType, value: object, kind: str) -> str:
        """Return advice about a JSON value (``json.strict``) that a column refuses.  ``kind``: the kind of the refusal."""

    def of_type(self, column: pa.DataType, type_: object) -> str:
        """Return advice about a type of Avro or Kafka Connect (``avro.schema``) whose values do not all fit a column."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The names that a contract's records may use, the forms of values, and the columns that records may leave out."""

    names: Names | None = None
    """None: only present names are allowed."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Default of each column that has one, as JSON.  An upsert that leaves the column out gets it; one that sets the
    column to null does not."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Present name of each column that has another name in the table, by the table's name.  All other mappings here
    use present names."""
    forms: Mapping[str, Form] = field(default_factory=dict)
    """Lenient form of each column that has one, by present name."""
    absent: frozenset[str] = frozenset()
    """Columns that no value has, since the metadata of records fills them."""
    record: str | None = None
    """Name that the schema of a record must have for the record to be a row (``table.format.record``).  None: any
    name will do."""
    passes_others: bool = False
    """Whether records of other names than ``record`` are passed over.  If false, they are refused."""
    advice: Advice | None = None
    """Advice that messages about refused cells add; None: they add none."""
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    """Text that a column of form ``json_text`` takes although it is not JSON, by present name.  A connector writes
    the text in place of values that it could not read."""

    def within(self, name: str) -> Names | None:
        """Return the names within a column; None if only present names are allowed there."""
        return None if self.names is None else self.names.present[name]

    def names_of(self, name: str) -> list[str]:
        """Return the present name of a column, and its former names."""
        former = {} if self.names is None else self.names.former
        return [name, *(old for old, new in former.items() if new == name)]

    def in_values(self, rows: RowSchema) -> RowSchema:
        """Return the columns that values may have: all but those that metadata fills."""
        if not self.absent:
            return rows
        columns = pa.schema([field for field in rows.columns if field.name not in self.absent])
        return RowSchema(columns, rows.primary_key, rows.region_key)


PLAIN = Naming()


def naming_of(contract: Contract) -> Naming:
    """Return the ``Naming`` of the values that a contract accepts."""
    fields = {column.name: column.field for column in contract.columns if column.field is not None}
    present = {column: fields.get(column.name, column.name) for column in contract.columns}
    defaults = {name: column.default for column, name in present.items() if column.default is not None}
    forms = {name: column.json_form for column, name in present.items() if column.json_form is not None}
    ignores = contract.on_unknown_column == "ignore"
    absent = frozenset(column.name for column in contract.columns if column.metadata is not None)
    names = None
    if contract.former_names or contract.dropped or ignores:
        present_trees = [tree for tree in trees(contract.record_rows) if tree.name not in absent]
        names = _names(present_trees, None, contract)
    passes = contract.on_other_record == "ignore"
    named = None if names is None or names.only_present else names
    return Naming(named, defaults, fields, forms, absent, contract.value_record, passes)


def key_naming_of(contract: Contract) -> Naming:
    """Return the ``Naming`` of record keys, which hold the region key's columns.  Any other name in a key is refused."""
    if not contract.former_names:
        return PLAIN
    rows = contract.record_rows
    names = _names([tree for tree in trees(rows) if tree.name in rows.region_key], None, contract)
    columns = set(rows.columns.names)
    former = {name: present for name, present in names.former.items() if name not in columns}
    names = replace(names, former=former, dropped=frozenset(), ignores=False)
    return Naming(None if names.only_present else names)


def _names(fields: Sequence[Tree], within: int | None, contract: Contract) -> Names:
    present = {tree.name: _inner(tree, contract) for tree in fields}
    by_id = {tree.id: tree.name for tree in fields}
    former = {one.name: by_id[one.id] for one in contract.former_names if one.id in by_id and one.name not in present}
    dropped = {one.name for one in contract.dropped if one.within == within and not one.forgotten}
    ignores = contract.on_unknown_column == "ignore"
    return Names(present, former, frozenset(dropped - present.keys() - former.keys()), ignores)


def _inner(tree: Tree, contract: Contract) -> Names | None:
    while pa.types.is_list(tree.type):
        (tree,) = tree.within
    return _names(tree.within, tree.id, contract) if pa.types.is_struct(tree.type) else None
