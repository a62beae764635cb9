"""A condition that is given as text: read as one whole expression, and said anew for Lance.

Guarantees
 1. The whole text is one expression, or ``InvalidInput`` shows what follows it.  (Lance drops that without a word.)
 2. A literal beside an integer, a decimal, a day or a time compares exactly, or ``InvalidInput`` shows the column's type and
    an example that works (``exact_values``).
 3. Nesting, operators and functions are limited: no condition overflows Lance's stack, and none makes a value that grows.
    Items of lists are not limited.

Grammar, the weakest first: ``OR``, ``AND``, ``NOT``, one comparison (``= == <> != < <= > >=``, ``BETWEEN``, ``IN``, ``LIKE``,
``ILIKE``, ``IS``), ``<< >>``, ``+ -``, ``* / % ||``, the sign, ``::type``, ``[place]`` and ``.member``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NoReturn

import pyarrow as pa

from lancewal_core.errors import InvalidInput
from lancewal_reader.forms.exact_values import (
    ANY_DECIMAL,
    Inexact,
    Moment,
    Value,
    comparable,
    counts_digits,
    example,
    free_decimal,
    moment,
    number,
    place,
    said,
    said_alone,
)

_DEPTH_MAX = 40
"""Lance's parser takes 47 brackets in one another, and about 20 that follow an operator each; it refuses more by itself."""
_TERMS_MAX = 5_000
"""Terms joined by ``AND`` and ``OR``: Lance takes 8,000, and ends the process at 100,000."""
_STEPS_MAX = 100
"""Calls, casts and arithmetic in one term: Lance needs 2 s for 500 additions, and ends the process at 1,000 casts."""
_ALL_STEPS_MAX = 10_000
"""In all terms: Lance needs 5 s for 5,000 of them in terms of a hundred."""
_STEPS_OF_A_CAST = 12
"""The time that Lance takes doubles with each cast of a cast: 20 take no time, 50 minutes."""
_JOINED_MAX = 100
"""Texts of rows that are joined: a result may be that many times as long as a row."""
_PADDED_MAX = 1_000
"""Characters of a padded text."""

_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*+'|"(?:[^"]|"")*+")|(?P<quoted>`(?:[^`]|``)*+`)|(?P<bytes>[xX]'[0-9a-fA-F]*')
    |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?!\w))|(?P<name>[^\W\d]\w*)
    |(?P<sign>::|<<|>>|<=|>=|<>|!=|==|\|\||[-+*/%=<>()\[\],.;])""",
    re.VERBOSE,
)
_SPACE = re.compile(r"(?:\s|--[^\n]*|/\*(?:[^*]|\*(?!/))*+\*/)*+")
_WHOLE_LIST = re.compile(r"\(\s*-?\d{1,20}+(?:\s*,\s*-?\d{1,20}+)*+\s*\)", re.ASCII)
_TEXT_LIST = re.compile(r"\(\s*'(?:[^']|'')*+'(?:\s*,\s*'(?:[^']|'')*+')*+\s*\)")
_UNQUOTED_DAY = re.compile(r"\d{4} - \d{1,2} - \d{1,2}")
"""What arithmetic makes of a day without quotes."""
_TEXT_ITEM = re.compile(r"'((?:[^']|'')*+)'")
_COMPARED = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_RESERVED = {
    "AND",
    "OR",
    "NOT",
    "IN",
    "IS",
    "BETWEEN",
    "LIKE",
    "ILIKE",
    "ESCAPE",
    "CASE",
    "SELECT",
    "EXISTS",
    "INTERVAL",
}
_TYPES: dict[str, pa.DataType | None] = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "TINYINT UNSIGNED": pa.uint8(),
    "SMALLINT UNSIGNED": pa.uint16(),
    "INT UNSIGNED": pa.uint32(),
    "INTEGER UNSIGNED": pa.uint32(),
    "BIGINT UNSIGNED": pa.uint64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "DOUBLE PRECISION": pa.float64(),
    "STRING": pa.string(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "BOOL": pa.bool_(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("ns"),
    "DECIMAL": None,
    "NUMERIC": None,
}
_UNITS = {0: "s", 3: "ms", 6: "us", 9: "ns"}
_DIGITS = {unit: digits for digits, unit in _UNITS.items()}

_CHOSEN = {"coalesce", "nvl", "ifnull"}
_ALIKE = {*_CHOSEN, "nullif", "greatest", "least"}
"""Their arguments have one type, and so has their result."""
_OF_LISTS = {
    *("array_has", "array_contains", "list_has", "list_contains", "array_has_any", "array_has_all"),
    *("array_length", "list_length", "cardinality", "array_position", "list_position", "array_ndims", "empty"),
}
_OF_NUMBERS = {
    *("round", "trunc", "sqrt", "cbrt", "exp", "ln", "log", "log2", "log10", "power", "pow", "signum", "gcd", "lcm"),
    *("sin", "cos", "tan", "cot", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "degrees", "radians", "pi"),
    *("isnan", "iszero", "nanvl"),
}
_OF_TEXTS = {
    *("lower", "upper", "btrim", "ltrim", "rtrim", "initcap", "reverse", "left", "right", "split_part"),
    *("starts_with", "ends_with", "contains", "strpos", "instr", "regexp_like", "regexp_match", "regexp_count"),
    *("length", "char_length", "character_length", "octet_length", "bit_length", "ascii", "levenshtein"),
    *(
        "replace",
        "translate",
        "lpad",
        "rpad",
        "to_hex",
        "chr",
        "concat",
        "concat_ws",
        "md5",
        "sha224",
        "sha256",
        "sha384",
        "sha512",
        "arrow_typeof",
    ),
}
_OF_TIMES = {"date_part", "datepart", "date_trunc", "datetrunc", "to_timestamp", "to_date"}
_SINCE_1970 = {
    "to_timestamp_seconds": 10**9,
    "to_timestamp_millis": 10**6,
    "to_timestamp_micros": 10**3,
    "to_timestamp_nanos": 1,
}
_NOW = {"now": pa.timestamp("ns"), "current_timestamp": pa.timestamp("ns"), "current_date": pa.date32()}
_WHOLE = {
    *("length", "char_length", "character_length", "octet_length", "bit_length", "strpos", "instr", "ascii"),
    *("array_length", "list_length", "cardinality", "array_position", "list_position", "date_part", "datepart"),
    *("regexp_count", "levenshtein"),
}
FUNCTIONS = frozenset({"abs", *_ALIKE, *_OF_LISTS, *_OF_NUMBERS, *_OF_TEXTS, *_OF_TIMES, *_SINCE_1970, *_NOW})
"""Functions whose result is bounded by their arguments."""

_OR, _AND, _NOT, _IS, _COMPARISON, _SHIFT, _SUM, _PRODUCT, _MINUS, _UNIT = range(10)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the condition, in Lance's SQL.  ``rank`` says how strongly its parts hold together."""

    sql: str
    rank: int = _UNIT
    type: pa.DataType | None = None
    value: Value | None = None
    items: tuple[_Part, ...] | None = None

    def within(self, rank: int) -> str:
        return self.sql if self.rank >= rank else f"({self.sql})"


def for_lance(schema: pa.Schema, condition: str) -> str:
    """The condition for ``LanceDataset.scanner``; raise ``InvalidInput`` for one that is not whole, exact or bounded."""
    return _Reader(schema, condition).read()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class _Reader:
    def __init__(self, schema: pa.Schema, text: str) -> None:
        self._schema = schema
        self._text = text
        self._depth = self._terms = self._steps = self._all_steps = self._joined = 0
        self._kind = self._word = ""
        self._from = self._to = 0
        self._next()

    def read(self) -> str:
        whole = self._or()
        if self._word == ";":
            self._next()
        if self._kind != "end":
            self._fail(f"the expression ends before {self._rest()}")
        return whole.sql

    # What stands next.

    def _next(self) -> None:
        space = _SPACE.match(self._text, self._to)
        assert space is not None
        self._from = space.end()
        found = _TOKEN.match(self._text, self._from)
        if found is not None:
            self._kind, self._word, self._to = found.lastgroup or "", found[0], found.end()
        elif self._from == len(self._text):
            self._kind, self._word, self._to = "end", "", self._from
        else:
            ends = self._text[self._from] not in "'\"`"
            self._fail(
                f"it has no meaning from {self._rest()} on" if ends else f"the quote in {self._rest()} is never closed"
            )

    def _rest(self) -> str:
        if self._from == len(self._text):
            return "its end"
        return f"{self._text[self._from : self._from + 60]!r} (character {self._from + 1})"

    def _fail(self, why: str) -> NoReturn:
        raise refused(self._text, why)

    def _is(self, *words: str) -> bool:
        return self._kind in ("name", "sign") and self._word.upper() in words

    def _take(self, *words: str) -> bool:
        if self._is(*words):
            self._next()
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._take(word):
            self._fail(f"expected {word!r} before {self._rest()}")

    def _inside(self, read: Callable[[], _Part]) -> _Part:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self._fail(f"more than {_DEPTH_MAX} expressions stand in one another")
        part = read()
        self._depth -= 1
        return part

    def _step(self, steps: int = 1) -> None:
        self._steps += steps
        self._all_steps += steps
        if self._steps > _STEPS_MAX:
            self._fail(f"it has more than {_STEPS_MAX} calls, casts and arithmetic operators in one term")
        if self._all_steps > _ALL_STEPS_MAX:
            self._fail(f"it has more than {_ALL_STEPS_MAX} calls, casts and arithmetic operators in all")

    def _term(self, terms: int = 1) -> None:
        self._terms += terms
        if self._terms > _TERMS_MAX:
            self._fail(f"more than {_TERMS_MAX} terms are joined by AND and OR; use IN for a list of values")

    def _twice(self, steps: int, terms: int) -> None:
        """Count once more what was read since then: Lance writes it a second time."""
        self._step(self._steps - steps + 1)
        self._term(self._terms - terms)

    def _join(self, texts: int) -> None:
        self._joined += texts
        if self._joined > _JOINED_MAX:
            self._fail(f"it joins more than {_JOINED_MAX} texts")

    # Logic.

    def _or(self) -> _Part:
        return self._chain("OR", _OR, lambda: self._chain("AND", _AND, self._not))

    def _chain(self, word: str, rank: int, read: Callable[[], _Part]) -> _Part:
        before = self._steps
        parts = [read()]
        most = self._steps
        while self._take(word):
            self._steps = before  # of one term
            self._term()
            parts.append(read())
            most = max(most, self._steps)
        self._steps = most
        if len(parts) == 1:
            return parts[0]
        return _Part(f" {word} ".join(part.within(rank + 1) for part in parts), rank, pa.bool_())

    def _not(self) -> _Part:
        if self._take("NOT"):
            return _Part(f"NOT {self._inside(self._not).within(_NOT)}", _NOT, pa.bool_())
        return self._predicate()

    def _predicate(self) -> _Part:
        before = self._steps, self._terms
        left = self._operand()
        if self._word in _COMPARED and self._kind == "sign":
            sign = _COMPARED[self._word]
            self._next()
            left = self._compared(sign, left, self._operand())
        else:
            denied = self._take("NOT")
            if self._take("BETWEEN"):
                self._twice(*before)
                left = self._between(left, denied)
            elif self._take("IN"):
                left = self._in(left, denied)
            elif self._is("LIKE", "ILIKE"):
                left = self._like(left, denied)
            elif denied:
                self._fail(f"expected IN, LIKE, ILIKE or BETWEEN before {self._rest()}")
        for _ in range(2):  # more in one another would be nesting without brackets
            if self._take("IS"):
                left = self._asked(left)
        return left

    def _asked(self, left: _Part) -> _Part:
        denied = "NOT " if self._take("NOT") else ""
        for word in ("NULL", "TRUE", "FALSE", "UNKNOWN"):
            if self._take(word):
                return _Part(f"{left.within(_COMPARISON)} IS {denied}{word}", _IS, pa.bool_())
        self._expect("DISTINCT")
        self._expect("FROM")
        left, right, known = self._met(left, self._operand())
        if not known:
            return _Part("false" if denied else "true", _UNIT, pa.bool_())
        # In brackets: Lance's parser takes all that follows, AND and OR too, for the right side.
        return _Part(f"({left.within(_SHIFT)} IS {denied}DISTINCT FROM {right.within(_SHIFT)})", type=pa.bool_())

    # Comparisons.

    def _compared(self, sign: str, left: _Part, right: _Part) -> _Part:
        if isinstance(left.value, Decimal) and isinstance(right.value, Decimal):
            order = left.value.compare(right.value)
            holds = {
                "=": order == 0,
                "<>": order != 0,
                "<": order < 0,
                "<=": order <= 0,
                ">": order > 0,
                ">=": order >= 0,
            }
            return _Part(str(holds[sign]).lower(), _UNIT, pa.bool_())
        if left.value is not None and right.value is None:
            sign, left, right = _TURNED[sign], right, left
        left, right, known = self._met(left, right)
        if not known:
            if sign in ("=", "<>"):
                return self._never(left, sign == "<>")
            sign = "<=" if sign in ("<", "<=") else ">"
        return _Part(f"{left.within(_SHIFT)} {sign} {right.within(_SHIFT)}", _COMPARISON, pa.bool_())

    @staticmethod
    def _never(part: _Part, always: bool = False) -> _Part:
        """False, or with ``always`` true, and null of a null."""
        sign = "=" if always else "<>"
        return _Part(f"{part.within(_SHIFT)} {sign} {part.within(_SHIFT)}", _COMPARISON, pa.bool_())

    def _met(self, left: _Part, right: _Part) -> tuple[_Part, _Part, bool]:
        """Both sides of a comparison; the last is whether the literal lies on the grid of the other side's type.  If it does
        not, the literal that comes back is the step before it."""
        if left.value is not None and right.value is None:
            right, left, known = self._met(right, left)
            return left, right, known
        if right.value is None or left.value is not None:
            for given, beside in ((left, right), (right, left)):
                unquoted_day = _UNQUOTED_DAY.fullmatch(given.sql) is not None and _is(pa.types.is_temporal, beside)
                of_bool = given.sql in ("true", "false") and not _is(pa.types.is_boolean, beside)
                if unquoted_day or (of_bool and beside.type is not None):
                    raise self._inexact(given, beside)
            left, right = self._in_one_unit([left, right])
            return left, right, True
        aligned, known = self._aligned(right, left)
        return left, aligned, known

    def _in_one_unit(self, parts: Sequence[_Part]) -> list[_Part]:
        """Times of several units in the finest of these: Lance would cut them to the coarsest.  ``now()`` counts as
        microseconds, so that years far away need not fit into nanoseconds."""
        of_nows = [f"{name}()" for name in _NOW]
        digits = {
            at: min(_DIGITS[part.type.unit], 6 if part.sql in of_nows else 9)  # type: ignore[union-attr] # a timestamp
            for at, part in enumerate(parts)
            if _is(pa.types.is_timestamp, part)
        }
        if len(set(digits.values())) < 2:
            return [*parts]
        finest, found = max(digits.values()), [*parts]
        for at, own in digits.items():
            type_ = parts[at].type
            if own != finest or parts[at].sql in of_nows:
                assert isinstance(type_, pa.TimestampType)
                name = f"TIMESTAMP({finest})"
                found[at] = self._cast(parts[at], "CAST", name, pa.timestamp(_UNITS[finest], type_.tz))
        return found

    def _aligned(self, given: _Part, beside: _Part) -> tuple[_Part, bool]:
        type_, value = beside.type, given.value
        assert value is not None
        if type_ is None:
            return given, True
        try:
            if type_ == ANY_DECIMAL:
                if isinstance(value, Moment):
                    raise Inexact
                return _Part(free_decimal(number(value) if isinstance(value, str) else value), type=type_), True
            if counts_digits(type_):
                steps, known = place(value, type_)
                return _Part(said(steps, type_), type=type_), known
        except Inexact:
            raise self._inexact(given, beside) from None
        if not comparable(value, type_):
            raise self._inexact(given, beside)
        return given, True

    def _inexact(self, given: _Part, beside: _Part) -> InvalidInput:
        type_ = beside.type
        named = "arithmetic with decimals" if type_ == ANY_DECIMAL else str(type_)
        why = f"{given.sql[:80]} is not a literal that compares exactly with {beside.sql[:80]}, whose type is {named[:80]}."
        if pa.types.is_nested(type_):
            return refused(self._text, f"{why} Compare a member or an item of it, such as place.lat or tags[1]")
        return refused(self._text, f"{why} An example that works: {beside.sql[:80]} = {example(type_)}")

    def _between(self, left: _Part, denied: bool) -> _Part:
        low = self._operand()
        self._expect("AND")
        high = self._operand()
        both = [self._compared(sign, left, bound) for sign, bound in ((">=", low), ("<=", high))]
        inner = _Part(" AND ".join(part.within(_NOT) for part in both), _AND, pa.bool_())
        return _Part(f"NOT ({inner.sql})" if denied else f"({inner.sql})", _NOT if denied else _UNIT, pa.bool_())

    def _in(self, left: _Part, denied: bool) -> _Part:
        if left.value is not None:
            return self._in_columns(left, denied)
        items = self._plain_items(left)
        if items is None:
            self._expect("(")
            items = []
            while True:
                item, known = self._item(left)
                if known:
                    items.append(item.sql)
                if not self._take(","):
                    break
            self._expect(")")
        if not items:
            return self._never(left, denied)
        word = "NOT IN" if denied else "IN"
        return _Part(f"{left.within(_SHIFT)} {word} ({', '.join(items)})", _COMPARISON, pa.bool_())

    def _in_columns(self, left: _Part, denied: bool) -> _Part:
        """A literal in a list: each item has its own type, and may be null."""
        self._expect("(")
        found = [self._compared("=", left, self._operand())]
        while self._take(","):
            self._term()
            found.append(self._compared("=", left, self._operand()))
        self._expect(")")
        inner = " OR ".join(part.within(_NOT) for part in found)
        return _Part(f"NOT ({inner})" if denied else f"({inner})", _NOT if denied else _UNIT, pa.bool_())

    def _item(self, left: _Part) -> tuple[_Part, bool]:
        before = self._steps, self._all_steps
        item = self._operand()
        if item.value is not None or item.sql[:2].upper() == "X'":  # literals are not limited
            self._steps, self._all_steps = before
        else:
            self._term()
        same, item, known = self._met(left, item)
        if same != left:
            raise refused(
                self._text, f"{left.sql[:80]} and {item.sql[:80]} have different units: compare them by =, not by IN"
            )
        return item, known

    def _plain_items(self, left: _Part) -> list[str] | None:
        """The items of a long list of plain literals, read at once."""
        if left.value is not None or left.type is None:
            return None
        found = _WHOLE_LIST.match(self._text, self._from)
        if found is not None and pa.types.is_integer(left.type):
            items = [item.strip() for item in found[0][1:-1].split(",")]
            for item in {min(items, key=int), max(items, key=int)}:
                self._aligned(_Part(item, value=Decimal(item)), left)
            items = [item if item != str(-(2**63)) else said(-(2**63), left.type) for item in items]
        else:
            found = _TEXT_LIST.match(self._text, self._from)
            if found is None or not pa.types.is_string(left.type):
                return None
            items = [f"'{item}'" for item in _TEXT_ITEM.findall(found[0])]
        self._to = found.end()
        self._next()
        return items

    def _like(self, left: _Part, denied: bool) -> _Part:
        word = self._word.upper()
        self._next()
        sql = f"{left.within(_SHIFT)} {'NOT ' if denied else ''}{word} {self._operand().within(_SHIFT)}"
        if self._take("ESCAPE"):
            sql += f" ESCAPE {self._primary().sql}"
        return _Part(sql, _COMPARISON, pa.bool_())

    # Arithmetic.

    def _operand(self) -> _Part:
        part = self._sum()
        while self._is("<<", ">>"):
            part = self._computed(part, _SHIFT, self._sum)
        return part

    def _sum(self) -> _Part:
        part = self._product()
        while self._is("+", "-"):
            part = self._computed(part, _SUM, self._product)
        return part

    def _product(self) -> _Part:
        part = self._minus()
        while self._is("*", "/", "%", "||"):
            part = self._computed(part, _PRODUCT, self._minus)
        return part

    def _computed(self, left: _Part, rank: int, read: Callable[[], _Part]) -> _Part:
        sign = self._word
        self._next()
        right = read()
        self._step()
        if sign == "||":
            self._join(right.value is None)
        sides = (left, right)
        if any(_is(pa.types.is_decimal, side) for side in sides):
            try:
                sides = tuple(
                    _Part(free_decimal(side.value)) if isinstance(side.value, Decimal) else side for side in sides
                )  # type: ignore[assignment] # two of them
            except Inexact:
                self._fail(f"a number beside {sign!r} has more digits than a decimal has")
        elif all(_is(pa.types.is_integer, side) for side in sides):
            sides = (_widened(left), _widened(right))
        return _Part(
            f"{sides[0].within(rank)} {sign} {sides[1].within(rank + 1)}", rank, _type_of_arithmetic(sign, left, right)
        )

    def _minus(self) -> _Part:
        if self._take("-"):
            part = self._inside(self._minus)
            if isinstance(part.value, Decimal):
                return _Part(
                    f"-{part.sql}" if part.sql[:1].isdigit() else f"-({part.sql})",
                    _MINUS,
                    part.type,
                    part.value.copy_negate(),
                )
            self._step()
            part = _widened(part)
            return _Part(f"-({part.sql})", _MINUS, part.type)
        return self._with_what_follows(self._primary())

    def _with_what_follows(self, part: _Part) -> _Part:
        while True:
            if self._take("::"):
                part = self._cast(part, "CAST", *self._type())
            elif self._take("["):
                part = self._at(part)
            elif part.type is not None and pa.types.is_struct(part.type) and self._take("."):
                part = self._member(part)
            else:
                return part

    def _at(self, part: _Part) -> _Part:
        self._step()
        if part.type is not None and pa.types.is_struct(part.type) and self._kind == "text":
            name = self._unquoted()
            part = self._member_named(part, name)
        else:
            inner = self._inside(self._operand)
            items = part.type.value_type if part.type is not None and pa.types.is_list(part.type) else None
            part = _Part(f"{part.within(_UNIT)}[{inner.sql}]", type=items)
        self._expect("]")
        return part

    # Names and values.

    def _primary(self) -> _Part:
        word, upper = self._word, self._word.upper()
        if self._kind == "text":
            text = self._unquoted()
            return _Part(_quoted(text), type=pa.string(), value=text)
        if self._kind == "number":
            self._next()
            try:
                return _Part(word, value=number(word))
            except Inexact:
                self._fail(f"the number {word[:40]} is too long")
        if self._kind == "bytes":
            self._next()
            return _Part(word, type=pa.binary())
        if self._take("("):
            part = self._inside(self._or)
            self._expect(")")
            return part
        if self._take("["):
            return self._list()
        if self._kind == "quoted":
            return self._column()
        if self._kind != "name" or upper in _RESERVED:
            self._fail(f"expected a column, a value or a function before {self._rest()}")
        if upper in ("TRUE", "FALSE", "NULL"):
            self._next()
            return _Part(upper.lower(), type=None if upper == "NULL" else pa.bool_())
        return self._word_first()

    def _word_first(self) -> _Part:
        upper = self._word.upper()
        before = (self._from, self._to, self._kind, self._word)
        self._next()
        if upper in ("DATE", "TIMESTAMP", "DECIMAL", "NUMERIC") and self._kind == "text":
            text = self._unquoted()
            given = _Part(_quoted(text), type=pa.string(), value=text)
            return self._literal_of(given, upper, None if upper in ("DECIMAL", "NUMERIC") else _TYPES[upper], upper)
        if upper in ("CAST", "TRY_CAST") and self._take("("):
            part = self._inside(self._or)
            self._expect("AS")
            name, type_ = self._type()
            self._expect(")")
            return self._cast(part, upper, name, type_)
        if self._take("("):
            return self._call(before[3].lower())
        if upper.lower() in ("current_date", "current_timestamp"):
            return _Part(f"{upper.lower()}()", type=_NOW[upper.lower()])
        self._from, self._to, self._kind, self._word = before
        return self._column()

    def _unquoted(self) -> str:
        quote = self._word[0]
        text = self._word[1:-1].replace(quote * 2, quote)
        self._next()
        return text

    def _name(self) -> tuple[str, bool]:
        if self._kind == "quoted":
            return self._unquoted(), True
        if self._kind != "name":
            self._fail(f"expected a name before {self._rest()}")
        name = self._word
        self._next()
        return name, False

    def _column(self) -> _Part:
        name, _ = self._name()
        field = _found(name, list(self._schema))
        if field is None:
            self._fail(f"it names {name!r}, which is no column of the table: it has {self._schema.names}")
        return _Part(f"`{field.name}`", type=field.type)

    def _member(self, part: _Part) -> _Part:
        return self._member_named(part, self._name()[0])

    def _member_named(self, part: _Part, name: str) -> _Part:
        assert part.type is not None
        members = list(part.type)
        field = _found(name, members)
        if field is None:
            self._fail(f"{part.sql} has no member {name!r}: it has {[member.name for member in members]}")
        return _Part(f"{part.sql}.`{field.name}`", type=field.type)

    def _list(self) -> _Part:
        items = []
        while not self._take("]"):
            items.append(self._inside(self._operand))
            if not self._is("]"):
                self._expect(",")
        return _Part(f"[{', '.join(item.sql for item in items)}]", items=tuple(items))

    # Types and calls.

    def _type(self) -> tuple[str, pa.DataType | None]:
        name = self._word.upper()
        if self._kind != "name" or name not in _TYPES:
            self._fail(f"expected one of the types {', '.join(_TYPES)} before {self._rest()}")
        self._next()
        for second in ("UNSIGNED", "PRECISION"):
            if f"{name} {second}" in _TYPES and self._take(second):
                name = f"{name} {second}"
        sizes: list[int] = []
        if self._take("("):
            while not sizes or self._take(","):
                if not (self._kind == "number" and self._word.isdigit() and len(self._word) < 3):
                    self._fail(f"expected a number of digits before {self._rest()}")
                sizes.append(int(self._word))
                self._next()
            self._expect(")")
        type_ = _TYPES[name]
        if name in ("DECIMAL", "NUMERIC"):
            if len(sizes) not in (1, 2) or not 1 <= sizes[0] <= 38 or not 0 <= sizes[-1] <= sizes[0]:
                self._fail(f"{name} needs its digits: DECIMAL(10, 2) has ten, of which two follow the point")
            type_ = pa.decimal128(sizes[0], sizes[1] if len(sizes) == 2 else 0)
            return f"DECIMAL({type_.precision}, {type_.scale})", type_
        if name == "TIMESTAMP" and sizes:
            if sizes[0] not in _UNITS:
                self._fail("TIMESTAMP has 0, 3, 6 or 9 digits of a second")
            return f"TIMESTAMP({sizes[0]})", pa.timestamp(_UNITS[sizes[0]])
        return name, type_

    def _cast(self, part: _Part, word: str, name: str, type_: pa.DataType | None) -> _Part:
        if part.value is not None and word == "CAST" and counts_digits(type_):
            return self._literal_of(part, f"CAST AS {name}", type_, name)
        self._step(_STEPS_OF_A_CAST)
        return _Part(f"{word}({part.sql} AS {name})", type=type_)

    def _literal_of(self, part: _Part, how: str, type_: pa.DataType | None, name: str) -> _Part:
        """A literal that names its type; it must be of this type as it stands."""
        value = part.value
        assert value is not None
        try:
            if type_ is None:
                value = number(value) if isinstance(value, str) else value
                assert isinstance(value, Decimal)
                return _Part(free_decimal(value), value=value)
            if isinstance(value, str):
                value = moment(value) if pa.types.is_temporal(type_) else number(value)
            if name == "TIMESTAMP" and isinstance(value, Moment):
                return _Part(said_alone(value), value=value)
            steps, known = place(value, type_)
            if not known:
                raise Inexact
            return _Part(said(steps, type_), value=value)
        except Inexact:
            shown = example(pa.decimal128(10, 2) if type_ is None else type_)
            raise refused(
                self._text, f"{part.sql[:80]} is not exactly a value of {name} ({how}). An example that works: {shown}"
            ) from None

    def _call(self, name: str) -> _Part:
        if name not in FUNCTIONS:
            self._fail(
                f"the function {name!r} is not one of those that a filter may call: {', '.join(sorted(FUNCTIONS))}"
            )
        before = self._steps, self._terms
        self._step()
        arguments: list[_Part] = []
        while not self._take(")"):
            arguments.append(self._inside(self._or))
            if not self._is(")"):
                self._expect(",")
        if name in _CHOSEN:
            self._twice(*before)
        self._check_length(name, arguments)
        if name in _SINCE_1970 and len(arguments) == 1 and isinstance(arguments[0].value, Decimal):
            return self._since_1970(arguments[0], _SINCE_1970[name])
        if name == "to_timestamp" and len(arguments) == 1 and isinstance(arguments[0].value, str):
            return self._literal_of(arguments[0], name, pa.timestamp("ns"), "TIMESTAMP")
        if name in _OF_NUMBERS and any(_is(pa.types.is_decimal, argument) for argument in arguments):
            self._fail(f"{name} takes a decimal's digits through a float; say CAST(... AS DOUBLE) where that is meant")
        type_: pa.DataType | None = pa.int64() if name in _WHOLE else _NOW.get(name)
        if name in _ALIKE:
            arguments, type_ = self._alike(name, arguments)
        elif name in _SINCE_1970:
            type_ = pa.timestamp(_UNITS[9 - len(str(_SINCE_1970[name])) + 1])
        elif name in _OF_LISTS:
            arguments = self._of_list(arguments)
        elif name in ("abs", "date_trunc", "datetrunc") and arguments:
            type_ = arguments[-1].type
            if name != "abs" and not _is(pa.types.is_timestamp, arguments[-1]):
                type_ = None
        return _Part(f"{name}({', '.join(argument.sql for argument in arguments)})", type=type_)

    def _check_length(self, name: str, arguments: list[_Part]) -> None:
        """Literals are bounded by the condition's own length, and other texts are counted."""
        literals = [part.value for part in arguments[1:]]
        if name in ("concat", "concat_ws"):
            self._join(sum(part.value is None for part in arguments))
        elif name in ("lpad", "rpad"):
            if not (literals and isinstance(literals[0], Decimal) and literals[0] <= _PADDED_MAX):
                self._fail(f"{name} needs its length as a number, at most {_PADDED_MAX}")
        elif name == "replace":
            old, new = literals if len(literals) == 2 else (None, None)
            if not (isinstance(old, str) and isinstance(new, str) and 0 < len(old) >= len(new)):
                self._fail("replace needs two texts as literals, of which the second is not the longer one")

    def _since_1970(self, given: _Part, unit_ns: int) -> _Part:
        assert given.value is not None
        try:
            at = Moment(place(given.value, pa.int64())[0] * unit_ns)
            return _Part(said_alone(at), value=at)
        except Inexact:
            self._fail(f"{given.sql[:80]} is not a time from 1677 to 2262")

    def _alike(self, name: str, arguments: list[_Part]) -> tuple[list[_Part], pa.DataType | None]:
        arguments = self._in_one_unit(arguments)
        typed = [part for part in arguments if part.value is None and part.type is not None]
        if not typed:
            return arguments, None
        types = list(dict.fromkeys(part.type for part in typed))
        type_: pa.DataType | None = types[0]
        if len(types) > 1 and name != "nullif":
            if all(pa.types.is_integer(each) for each in types):
                type_ = None if pa.uint64() in types else pa.int64()
            elif all(pa.types.is_floating(each) for each in types):
                type_ = pa.float64()
            else:
                shown = ", ".join(map(str, types))
                raise refused(
                    self._text, f"{name} has arguments of several types: {shown[:160]}. Cast them to one of these"
                )
        beside = replace(typed[0], type=type_)
        return [self._exactly(part, beside) for part in arguments], type_

    def _of_list(self, arguments: list[_Part]) -> list[_Part]:
        if not arguments or not _is(pa.types.is_list, arguments[0]):
            return arguments
        item = _Part(f"{arguments[0].sql}[1]", type=arguments[0].type.value_type)  # type: ignore[union-attr] # a list
        found = [arguments[0]]
        for part in arguments[1:]:
            if part.items is not None:
                part = _Part(f"[{', '.join(self._exactly(one, item).sql for one in part.items)}]")
            found.append(self._exactly(part, item))
        return found

    def _exactly(self, part: _Part, beside: _Part) -> _Part:
        if part.value is None:
            return part
        aligned, known = self._aligned(part, beside)
        if not known:
            raise self._inexact(part, beside)
        return aligned


def _is(of: Callable[[pa.DataType], bool], part: _Part) -> bool:
    return part.type is not None and part.value is None and of(part.type)


def _widened(part: _Part) -> _Part:
    """Integers in 64 bits: with 8 Lance adds 100 and 100 to -56."""
    if not _is(pa.types.is_integer, part) or part.type in (pa.int64(), pa.uint64()):
        return part
    return _Part(f"CAST({part.sql} AS BIGINT)", type=pa.int64())


def _type_of_arithmetic(sign: str, left: _Part, right: _Part) -> pa.DataType | None:
    if sign == "||":
        return pa.string()
    if any(_is(pa.types.is_floating, side) for side in (left, right)):
        return pa.float64()
    if any(_is(pa.types.is_decimal, side) for side in (left, right)):
        return ANY_DECIMAL
    whole = all(
        _is(pa.types.is_integer, side)
        or (isinstance(side.value, Decimal) and side.sql.lstrip("-").isdigit())  # 2.0 makes a float
        for side in (left, right)
    )
    return pa.int64() if whole else None


def _found(name: str, fields: list[pa.Field]) -> pa.Field | None:
    """By its exact name, else in any case if that names one."""
    exact = [field for field in fields if field.name == name]
    alike = exact or [field for field in fields if field.name.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def refused(condition: str, why: str) -> InvalidInput:
    shown = condition if len(condition) <= 200 else condition[:200] + "..."
    return InvalidInput(f"filter {shown!r} is not accepted: {why}")
