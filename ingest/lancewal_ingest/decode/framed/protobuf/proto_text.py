"""Parser of the text of ``.proto`` files into the descriptors that protoc would make of them.

Guarantees
1. ``parse_proto`` returns the descriptor of a file in the syntax ``proto2`` or ``proto3``, or raises
   ``ProtoSyntaxError``.  The error names the line.
2. The descriptor has all that says how bytes are read: messages, fields, enumerations, oneofs, maps and groups, in
   order.  Services, extensions, and options that say nothing about bytes are skipped.
3. Names of types are as the text has them.  The code that links the files (``schema``) finds the types, and checks
   numbers and names.
4. Messages nest at most ``NESTING_MAX`` deep.

Source: the language specifications of proto2 and proto3 at protobuf.dev.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from google.protobuf import descriptor_pb2

NESTING_MAX = 32
_SHOWN = 60
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>\.?[0-9](?:[eE][+-]?[0-9]|[A-Za-z0-9_.])*)
      | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<mark>[{}()\[\]<>=;,.:+/-])""",
    re.VERBOSE | re.DOTALL,
)
_INTEGER = re.compile(r"0[xX][0-9A-Fa-f]+|0[0-7]*|[1-9][0-9]*")
_ESCAPE = re.compile(rb"\\(?:[xX]([0-9A-Fa-f]{1,2})|([0-7]{1,3})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_PLAIN_ESCAPES = b"\\'\"?"
_Field = descriptor_pb2.FieldDescriptorProto
SCALARS: dict[str, _Field.Type.ValueType] = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in _Field.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
_LABELS = {
    "optional": _Field.LABEL_OPTIONAL,
    "required": _Field.LABEL_REQUIRED,
    "repeated": _Field.LABEL_REPEATED,
}
_KEYS = frozenset(SCALARS) - {"float", "double", "bytes"}
_CLOSING = {"{": "}", "[": "]", "<": ">"}
_MOST_NUMBER = (1 << 29) - 1


class ProtoSyntaxError(Exception):
    """The text is not a valid ``.proto`` file.  The message names the line."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


_END = _Token("end", "the end", -1)


def parse_proto(text: str, name: str) -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor of a file.  ``name``: the name by which other files import this file."""
    return _Parser(text, name).file()


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._tokens = self._scan(text)
        self._next = 0
        self._depth = 0
        self._file = descriptor_pb2.FileDescriptorProto(name=name)

    def _scan(self, text: str) -> list[_Token]:
        tokens, at = [], 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._error(f"expected a name, a number, a string or a mark, not {text[at]!a}", at)
            if found.lastgroup != "space":
                tokens.append(_Token(str(found.lastgroup), found.group(), at))
            at = found.end()
        return tokens

    def _error(self, message: str, at: int | None = None) -> ProtoSyntaxError:
        place = self._peek().at if at is None else at
        line = self._text.count("\n", 0, len(self._text) if place < 0 else place) + 1
        return ProtoSyntaxError(f"line {line}: {message}")

    def _peek(self, ahead: int = 0) -> _Token:
        place = self._next + ahead
        return self._tokens[place] if place < len(self._tokens) else _END

    def _take(self) -> _Token:
        token = self._peek()
        if token is _END:
            raise self._error("the text ends too early")
        self._next += 1
        return token

    def _skip(self, text: str) -> bool:
        """Take the next token if it is ``text``, which is a name or a mark."""
        token = self._peek()
        if token.text != text or token.kind not in ("name", "mark"):
            return False
        self._next += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._skip(text):
            raise self._error(f"expected {text!r}, not {self._peek().text[:_SHOWN]!a}")

    def _name(self) -> str:
        if self._peek().kind != "name":
            raise self._error(f"expected a name, not {self._peek().text[:_SHOWN]!a}")
        return self._take().text

    def _full_name(self) -> str:
        """Take a name with dots, which may begin with one."""
        parts = ["" if self._skip(".") else self._name()]
        if not parts[0]:
            parts.append(self._name())
        while self._skip("."):
            parts.append(self._name())
        return ".".join(parts)

    def _integer(self, most: int = _MOST_NUMBER, least: int = 0) -> int:
        sign = -1 if self._skip("-") else 1
        token = self._peek()
        if token.kind != "number" or not _INTEGER.fullmatch(token.text) or len(token.text) > 24:
            raise self._error(f"expected an integer, not {token.text[:_SHOWN]!a}")
        digits = self._take().text
        base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
        number = sign * int(digits, base)
        if not least <= number <= most:
            raise self._error(f"expected an integer from {least} to {most}")
        return number

    def _string(self) -> bytes:
        if self._peek().kind != "text":
            raise self._error(f"expected a string, not {self._peek().text[:_SHOWN]!a}")
        pieces = []
        while self._peek().kind == "text":
            pieces.append(_ESCAPE.sub(self._unescaped, self._take().text[1:-1].encode()))
        return b"".join(pieces)

    def _unescaped(self, found: re.Match[bytes]) -> bytes:
        hexadecimal, octal, short, long, other = found.groups()
        if other is not None:
            if other in _ESCAPES:
                return _ESCAPES[other]
            if other not in _PLAIN_ESCAPES:
                raise self._error("a string has an escape that does not exist")
            return bytes(other)
        if hexadecimal is not None:
            return bytes([int(hexadecimal, 16)])
        if octal is not None:
            return bytes([int(octal, 8) & 0xFF])
        try:
            return chr(int(short or long, 16)).encode()
        except (ValueError, UnicodeEncodeError):
            raise self._error("a string has an escape of a character that does not exist") from None

    def _path(self) -> str:
        try:
            return self._string().decode()
        except UnicodeDecodeError:
            raise self._error("expected a string in UTF-8") from None

    def file(self) -> descriptor_pb2.FileDescriptorProto:
        self._syntax()
        while self._peek() is not _END:
            word = self._take()
            match word.text:
                case ";":
                    pass
                case "import":
                    kind = self._peek().text if self._peek().kind == "name" else ""
                    if kind in ("public", "weak"):
                        self._take()
                    if kind == "public":
                        self._file.public_dependency.append(len(self._file.dependency))
                    self._file.dependency.append(self._path())
                    self._expect(";")
                case "package":
                    if self._file.package:
                        raise self._error("expected only one package", word.at)
                    self._file.package = self._full_name()
                    self._expect(";")
                case "option":
                    self._option()
                    self._expect(";")
                case "message":
                    self._message(self._file.message_type.add())
                case "enum":
                    self._enum(self._file.enum_type.add())
                case "extend":
                    self._extend()
                case "service":
                    self._name()
                    self._pass_over()
                case _:
                    raise self._error(f"expected message, enum or import, not {word.text[:_SHOWN]!a}", word.at)
        return self._file

    def _syntax(self) -> None:
        self._file.syntax = "proto2"
        if self._peek().text == "edition":
            raise self._error("expected the syntax proto2 or proto3; editions cannot be read")
        if self._skip("syntax"):
            self._expect("=")
            self._file.syntax = self._path()
            if self._file.syntax not in ("proto2", "proto3"):
                raise self._error("expected the syntax proto2 or proto3")
            self._expect(";")

    def _pass_over(self) -> None:
        """Skip braces and all that is within them."""
        open_ = [self._take().text]
        if open_[0] not in _CLOSING:
            raise self._error("expected an opening brace")
        while open_:
            token = self._take()
            if token.kind != "mark":
                continue
            if token.text in _CLOSING:
                open_.append(token.text)
            elif token.text in _CLOSING.values() and token.text != _CLOSING[open_.pop()]:
                raise self._error(f"the brace {token.text!r} does not match the brace that is open", token.at)

    def _extend(self) -> None:
        """Skip extensions.  Messages are not extended here, so the numbers of extensions count as unknown."""
        self._full_name()
        self._pass_over()

    def _option(self) -> tuple[str, str]:
        """Read an option, up to the mark that ends it.  Return its name and its value, which is empty unless it is a
        name or a number.
        """
        name = []
        while True:
            if self._skip("("):
                name.append(f"({self._full_name()})")
                self._expect(")")
            else:
                name.append(self._name())
            if not self._skip("."):
                break
        self._expect("=")
        if self._peek().text in ("{", "["):
            self._pass_over()
            return ".".join(name), ""
        return ".".join(name), self._constant()

    def _constant(self) -> str:
        if self._peek().kind == "text":
            self._string()
            return ""
        sign = "-" if self._skip("-") else ""
        if not sign:
            self._skip("+")
        token = self._peek()
        return sign + (self._take().text if token.kind == "number" else self._full_name())

    def _message(self, message: descriptor_pb2.DescriptorProto) -> None:
        message.name = self._name()
        self._body(message)

    def _body(self, message: descriptor_pb2.DescriptorProto) -> None:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._error(f"messages nest more than {NESTING_MAX} deep")
        self._expect("{")
        while not self._skip("}"):
            self._member(message)
        # The oneofs that stand for optional fields come after all others.
        taken = {*(one.name for one in message.field), *(one.name for one in message.oneof_decl)}
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=_free_name(f"_{field.name}", taken))
        self._depth -= 1

    def _member(self, message: descriptor_pb2.DescriptorProto) -> None:
        word = self._peek()
        follows = self._peek(1)
        if word.text == ";":
            self._take()
        elif word.text in ("message", "enum") and follows.kind == "name" and self._peek(2).text == "{":
            self._take()
            if word.text == "message":
                self._message(message.nested_type.add())
            else:
                self._enum(message.enum_type.add())
        elif word.text == "option" and (follows.kind == "name" or follows.text == "(") and self._is_option():
            self._take()
            name, value = self._option()
            if name == "message_set_wire_format" and value == "true":
                raise self._error("message sets cannot be read", word.at)
            self._expect(";")
        elif word.text in ("reserved", "extensions") and not self._is_field():
            while not self._skip(";"):
                if self._peek().text == "[":
                    self._pass_over()
                else:
                    self._take()
        elif word.text == "extend" and not self._is_field():
            self._take()
            self._extend()
        elif word.text == "oneof" and follows.kind == "name" and self._peek(2).text == "{":
            self._take()
            self._oneof(message)
        else:
            self._field(message, None)

    def _is_field(self) -> bool:
        """Return whether a name, ``=`` and a number follow the next token, so that it is the type of a field."""
        return self._peek(1).kind == "name" and self._peek(2).text == "=" and self._peek(3).kind == "number"

    def _is_option(self) -> bool:
        return self._peek(1).text == "(" or not self._is_field() or self._peek(4).text == "."

    def _oneof(self, message: descriptor_pb2.DescriptorProto) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._name())
        self._expect("{")
        while not self._skip("}"):
            if self._skip(";"):
                continue
            if self._peek().text == "option" and self._is_option():
                self._take()
                self._option()
                self._expect(";")
            else:
                self._field(message, index)

    def _field(self, message: descriptor_pb2.DescriptorProto, oneof: int | None) -> None:
        field = _Field(label=_Field.LABEL_OPTIONAL)
        first, label = self._peek(), ""
        if first.text in _LABELS and (self._peek(1).kind == "name" or self._peek(1).text == "."):
            label = self._take().text
            field.label = _LABELS[label]
        proto2 = self._file.syntax == "proto2"
        is_map = self._peek().text == "map" and self._peek(1).text == "<"
        if label and (oneof is not None or is_map):
            raise self._error(f"the label {label!r} is not allowed for a map, or for a field in a oneof", first.at)
        if not label and proto2 and oneof is None and not is_map:
            raise self._error("expected required, optional or repeated before a field", first.at)
        if label == "required" and not proto2:
            raise self._error("proto3 has no required fields", first.at)
        field.proto3_optional = label == "optional" and not proto2
        if not field.proto3_optional:
            field.ClearField("proto3_optional")
        if oneof is not None:
            field.oneof_index = oneof
        entry = None
        group = self._peek().text == "group" and self._peek(1).kind == "name" and self._peek(1).text[:1].isupper()
        if is_map:
            entry = self._map_types()
        else:
            type_ = self._full_name()
            if type_ in SCALARS:
                field.type = SCALARS[type_]
            else:
                field.type_name = type_
        # Linking wants names in JSON that differ, and protoc does not in every file.  Nothing reads them.
        field.name = field.json_name = self._name()
        self._expect("=")
        field.number = self._integer(least=1)
        if self._skip("["):
            self._field_options(field)
        if group and proto2 and self._peek().text == "{":
            field.type, field.type_name = _Field.TYPE_GROUP, field.name
            field.name = field.json_name = field.name.lower()
            within = message.nested_type.add(name=field.type_name)
            message.field.append(field)
            self._body(within)
            return
        self._expect(";")
        if entry is not None:
            entry.name = _entry_name(field.name)
            message.nested_type.append(entry)
            field.label, field.type, field.type_name = _Field.LABEL_REPEATED, _Field.TYPE_MESSAGE, entry.name
        message.field.append(field)

    def _map_types(self) -> descriptor_pb2.DescriptorProto:
        self._expect("map")
        self._expect("<")
        entry = descriptor_pb2.DescriptorProto()
        entry.options.map_entry = True
        key = self._full_name()
        if key not in _KEYS:
            raise self._error("expected a key of a map that is an integer, a bool or a string")
        entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL, type=SCALARS[key])
        self._expect(",")
        value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
        type_ = self._full_name()
        if type_ in SCALARS:
            value.type = SCALARS[type_]
        else:
            value.type_name = type_
        self._expect(">")
        return entry

    def _field_options(self, field: _Field) -> None:
        while True:
            name, value = self._option()
            if name == "packed":
                field.options.packed = value == "true"
            if self._skip("]"):
                return
            self._expect(",")

    def _enum(self, enum: descriptor_pb2.EnumDescriptorProto) -> None:
        enum.name = self._name()
        self._expect("{")
        while not self._skip("}"):
            if self._skip(";"):
                continue
            if self._peek().text == "option" and self._peek(2).text != "-" and not self._is_value():
                self._take()
                name, value = self._option()
                if name == "allow_alias":
                    enum.options.allow_alias = value == "true"
                self._expect(";")
            elif self._peek().text == "reserved" and not self._is_value():
                while not self._skip(";"):
                    self._take()
            else:
                name = self._name()
                self._expect("=")
                enum.value.add(name=name, number=self._integer(least=-(1 << 31), most=(1 << 31) - 1))
                if self._skip("["):
                    self._field_options(_Field())
                self._expect(";")

    def _is_value(self) -> bool:
        """Return whether the next token is the name of a value, although it is a word of the language."""
        return self._peek(1).text == "="


def _entry_name(field: str) -> str:
    """Return the name of the message of a map's entries, as protoc makes it."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


def _free_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"X{name}"
    taken.add(name)
    return name
