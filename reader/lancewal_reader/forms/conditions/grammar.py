"""The grammar of conditions, and the condition that Lance gets.

Guarantees
 1. The whole text is one expression, or ``InvalidInput`` shows what follows it.  (Lance ignores such text silently.)
 2. A literal is compared exactly with an integer, a decimal, a day or a time, or ``InvalidInput`` shows the column's type and
    an example that works (``comparisons``).
 3. Nesting, operators and functions are limited (``limits``, ``functions``).

Grammar, the weakest first: ``OR``, ``AND``, ``NOT``, one comparison (``= == <> != < <= > >=``, ``BETWEEN``, ``IN``, ``LIKE``,
``ILIKE``, ``IS``), ``<< >>``, ``+ -``, ``* / % ||``, the sign, ``::type``, ``[place]`` and ``.member``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial

import pyarrow as pa

from lancewal_core.errors import InvalidInput
from lancewal_reader.forms.conditions.arithmetic import computed, negated
from lancewal_reader.forms.conditions.comparisons import NOW, compared, in_type, met, never
from lancewal_reader.forms.conditions.exact_values import Inexact, number, said
from lancewal_reader.forms.conditions.functions import CHOSEN, called, check_allowed
from lancewal_reader.forms.conditions.limits import Limits
from lancewal_reader.forms.conditions.part import NotAccepted, Part, Rank, holds, quoted
from lancewal_reader.forms.conditions.tokens import Tokens
from lancewal_reader.forms.conditions.type_names import WITH_TEXT, cast, literal_of, read_type

_COMPARED = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_SIGNS: dict[int, tuple[str, ...]] = {
    Rank.SHIFT: ("<<", ">>"),
    Rank.SUM: ("+", "-"),
    Rank.PRODUCT: ("*", "/", "%", "||"),
}
_RESERVED = {
    *("AND", "OR", "NOT", "IN", "IS", "BETWEEN", "LIKE", "ILIKE", "ESCAPE", "CASE", "SELECT", "EXISTS", "INTERVAL")
}
_WHOLE_LIST = re.compile(r"\(\s*-?\d{1,20}+(?:\s*,\s*-?\d{1,20}+)*+\s*\)", re.ASCII)
_TEXT_LIST = re.compile(r"\(\s*'(?:[^']|'')*+'(?:\s*,\s*'(?:[^']|'')*+')*+\s*\)")
_TEXT_ITEM = re.compile(r"'(?:[^']|'')*+'")


def for_lance(schema: pa.Schema, condition: str) -> str:
    """Check a user's condition, and return it in the form that ``LanceDataset.scanner`` needs.

    Raises ``InvalidInput`` if the text is not one complete expression, if a literal does not compare exactly, or if a
    limit is exceeded.
    """
    try:
        return _Reader(schema, Tokens(condition)).read()
    except NotAccepted as error:
        raise refused(condition, str(error)) from None


def refused(condition: str, why: str) -> InvalidInput:
    shown = condition if len(condition) <= 200 else condition[:200] + "..."
    return InvalidInput(f"filter {shown!r} is not accepted: {why}")


class _Reader:
    """Parser by recursive descent: a method for each level of the grammar."""

    def __init__(self, schema: pa.Schema, tokens: Tokens) -> None:
        self._schema = schema
        self._tokens = tokens
        self._limits = Limits()
        self._inside = self._limits.inside

    def read(self) -> str:
        whole = self._or()
        self._tokens.take(";")
        if self._tokens.kind != "end":
            raise NotAccepted(f"the expression ends before {self._tokens.rest()}")
        return whole.sql

    # Logic.

    def _or(self) -> Part:
        return self._chain("OR", Rank.OR, partial(self._chain, "AND", Rank.AND, self._not))

    def _chain(self, word: str, rank: int, read: Callable[[], Part]) -> Part:
        limits = self._limits
        before = limits.steps
        parts = [read()]
        most = limits.steps
        while self._tokens.take(word):
            limits.steps = before
            limits.term()
            parts.append(read())
            most = max(most, limits.steps)
        limits.steps = most
        if len(parts) == 1:
            return parts[0]
        return holds(f" {word} ".join(part.within(rank + 1) for part in parts), rank)

    def _not(self) -> Part:
        if self._tokens.take("NOT"):
            return holds(f"NOT {self._inside(self._not).within(Rank.NOT)}", Rank.NOT)
        return self._predicate()

    def _predicate(self) -> Part:
        tokens, before = self._tokens, self._limits.mark()
        left = self._operand()
        if tokens.word in _COMPARED and tokens.kind == "sign":
            sign = _COMPARED[tokens.next()]
            left = compared(sign, left, self._operand(), self._limits)
        else:
            denied = tokens.take("NOT")
            if tokens.take("BETWEEN"):
                self._limits.twice(before)
                left = self._between(left, denied)
            elif tokens.take("IN"):
                left = self._in(left, denied)
            elif tokens.at("LIKE", "ILIKE"):
                left = self._like(left, denied)
            elif denied:
                tokens.expected("IN, LIKE, ILIKE or BETWEEN")
        for _ in range(2):  # more in one another would be nesting without brackets
            if tokens.take("IS"):
                left = self._is(left)
        return left

    def _is(self, left: Part) -> Part:
        tokens = self._tokens
        denied = "NOT " if tokens.take("NOT") else ""
        for word in ("NULL", "TRUE", "FALSE", "UNKNOWN"):
            if tokens.take(word):
                return holds(f"{left.within(Rank.COMPARISON)} IS {denied}{word}", Rank.IS)
        tokens.expect("DISTINCT")
        tokens.expect("FROM")
        left, right, known = met(left, self._operand(), self._limits)
        if not known:
            return holds("false" if denied else "true", Rank.UNIT)
        # In brackets: Lance's parser takes all that follows, AND and OR too, for the right side.
        return holds(f"({left.within(Rank.SHIFT)} IS {denied}DISTINCT FROM {right.within(Rank.SHIFT)})", Rank.UNIT)

    def _between(self, left: Part, denied: bool) -> Part:
        low = self._operand()
        self._tokens.expect("AND")
        high = self._operand()
        return _joined(
            " AND ",
            [compared(sign, left, bound, self._limits) for sign, bound in ((">=", low), ("<=", high))],
            denied,
        )

    def _in(self, left: Part, denied: bool) -> Part:
        if left.value is not None:
            return self._in_columns(left, denied)
        items = self._plain_items(left)
        if items is None:
            items = []
            self._tokens.expect("(")
            while True:
                item, known = self._item(left)
                if known:
                    items.append(item.sql)
                if not self._tokens.take(","):
                    break
            self._tokens.expect(")")
        if not items:
            return never(left, denied)
        return holds(f"{left.within(Rank.SHIFT)} {'NOT ' if denied else ''}IN ({', '.join(items)})")

    def _in_columns(self, left: Part, denied: bool) -> Part:
        """Read the list of an ``IN`` after a literal.  Each item of the list has its own type, and may be null."""
        self._tokens.expect("(")
        found = [compared("=", left, self._operand(), self._limits)]
        while self._tokens.take(","):
            self._limits.term()
            found.append(compared("=", left, self._operand(), self._limits))
        self._tokens.expect(")")
        return _joined(" OR ", found, denied)

    def _item(self, left: Part) -> tuple[Part, bool]:
        same, item, known = met(left, self._limits.item(self._operand), self._limits)
        if same != left:
            raise NotAccepted(
                f"{left.sql[:80]} and {item.sql[:80]} are times in different units, such as ms and us: compare them by =, not "
                "by IN"
            )
        return item, known

    def _plain_items(self, left: Part) -> list[str] | None:
        """Read a list of plain literals at once, which is faster; return None, and read nothing, for another list."""
        if left.of(pa.types.is_integer):
            found = self._tokens.take_all(_WHOLE_LIST)
            if found is None:
                return None
            items = [item.strip() for item in found[1:-1].split(",")]
            for item in {min(items, key=int), max(items, key=int)}:
                in_type(Part(item, value=Decimal(item)), left)
            return [item if item != str(-(2**63)) else said(-(2**63), pa.int64()) for item in items]
        found = self._tokens.take_all(_TEXT_LIST) if left.of(pa.types.is_string) else None
        return None if found is None else _TEXT_ITEM.findall(found)

    def _like(self, left: Part, denied: bool) -> Part:
        word = self._tokens.next().upper()
        sql = f"{left.within(Rank.SHIFT)} {'NOT ' if denied else ''}{word} {self._operand().within(Rank.SHIFT)}"
        if self._tokens.take("ESCAPE"):
            sql += f" ESCAPE {self._primary().sql}"
        return holds(sql)

    # Arithmetic.

    def _operand(self, rank: int = Rank.SHIFT) -> Part:
        read = self._minus if rank == Rank.PRODUCT else partial(self._operand, rank + 1)
        part = read()
        while self._tokens.at(*_SIGNS[rank]):
            sign = self._tokens.next()
            right = read()
            self._limits.step()
            if sign == "||":
                self._limits.join(right.value is None)
            part = computed(sign, rank, part, right)
        return part

    def _minus(self) -> Part:
        if not self._tokens.take("-"):
            return self._with_what_follows(self._primary())
        part = self._inside(self._minus)
        if not isinstance(part.value, Decimal):
            self._limits.step()
        return negated(part)

    def _with_what_follows(self, part: Part) -> Part:
        while True:
            if self._tokens.take("::"):
                part = cast(part, "CAST", *read_type(self._tokens), self._limits)
            elif self._tokens.take("["):
                part = self._at(part)
            elif part.type is not None and pa.types.is_struct(part.type) and self._tokens.take("."):
                part = _member(part, self._tokens.name())
            else:
                return part

    def _at(self, part: Part) -> Part:
        self._limits.step()
        if part.type is not None and pa.types.is_struct(part.type) and self._tokens.kind == "text":
            part = _member(part, self._tokens.unquoted())
        else:
            inner = self._inside(self._operand)
            items = part.type.value_type if part.type is not None and pa.types.is_list(part.type) else None
            part = Part(f"{part.within(Rank.UNIT)}[{inner.sql}]", type=items)
        self._tokens.expect("]")
        return part

    # Names and values.

    def _primary(self) -> Part:
        tokens, upper = self._tokens, self._tokens.word.upper()
        match tokens.kind:
            case "text":
                return quoted(tokens.unquoted())
            case "number":
                word = tokens.next()
                try:
                    return Part(word, value=number(word))
                except Inexact:
                    raise NotAccepted(f"the number {word[:40]} is too long") from None
            case "bytes":
                return Part(tokens.next(), type=pa.binary())
            case "quoted":
                return self._column()
        if tokens.take("("):
            part = self._inside(self._or)
            tokens.expect(")")
            return part
        if tokens.take("["):
            items = self._until("]", self._operand)
            return Part(f"[{', '.join(item.sql for item in items)}]", items=tuple(items))
        if tokens.kind != "name" or upper in _RESERVED:
            tokens.expected("a column, a value or a function")
        if upper in ("TRUE", "FALSE", "NULL"):
            tokens.next()
            return Part(upper.lower(), type=None if upper == "NULL" else pa.bool_())
        return self._word()

    def _word(self) -> Part:
        tokens = self._tokens
        place, word = tokens.place, tokens.next()
        upper = word.upper()
        if upper in WITH_TEXT and tokens.kind == "text":
            return literal_of(quoted(tokens.unquoted()), upper, upper)
        if tokens.take("("):
            return self._cast(upper) if upper in ("CAST", "TRY_CAST") else self._call(word.lower())
        if upper in ("CURRENT_DATE", "CURRENT_TIMESTAMP"):
            return Part(f"{upper.lower()}()", type=NOW[upper.lower()])
        tokens.seek(place)
        return self._column()

    def _cast(self, word: str) -> Part:
        part = self._inside(self._or)
        self._tokens.expect("AS")
        name, type_ = read_type(self._tokens)
        self._tokens.expect(")")
        return cast(part, word, name, type_, self._limits)

    def _call(self, name: str) -> Part:
        check_allowed(name)
        before = self._limits.mark()
        self._limits.step()
        arguments = self._until(")", self._or)
        if name in CHOSEN:
            self._limits.twice(before)
        return called(name, arguments, self._limits)

    def _until(self, end: str, read: Callable[[], Part]) -> list[Part]:
        items = []
        while not self._tokens.take(end):
            items.append(self._inside(read))
            if not self._tokens.at(end):
                self._tokens.expect(",")
        return items

    def _column(self) -> Part:
        name = self._tokens.name()
        field = _found(name, list(self._schema))
        if field is None:
            raise NotAccepted(f"it names {name!r}, which is not a column of the table: it has {self._schema.names}")
        return Part(f"`{field.name}`", type=field.type)


def _joined(word: str, parts: list[Part], denied: bool) -> Part:
    inner = word.join(part.within(Rank.NOT) for part in parts)
    return holds(f"NOT ({inner})", Rank.NOT) if denied else holds(f"({inner})", Rank.UNIT)


def _member(part: Part, name: str) -> Part:
    assert part.type is not None
    members = list(part.type)
    field = _found(name, members)
    if field is None:
        raise NotAccepted(f"{part.sql} has no member {name!r}: it has {[member.name for member in members]}")
    return Part(f"{part.sql}.`{field.name}`", type=field.type)


def _found(name: str, fields: list[pa.Field]) -> pa.Field | None:
    """Return the field of exactly this name, else the only one of this name in any case."""
    exact = [field for field in fields if field.name == name]
    alike = exact or [field for field in fields if field.name.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None
