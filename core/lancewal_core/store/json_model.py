"""Reading stored JSON as one pydantic model, by the rules of ``json_object``.  Faults become errors of lancewal."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

from lancewal_core.errors import FormatUnknown, ObjectCorrupt
from lancewal_core.names.words import word
from lancewal_core.store.json_object import JsonFault, JsonObject, is_whole

M = TypeVar("M", bound=BaseModel)


class StoredModel(BaseModel):
    """A value inside a stored object.  Instances are immutable.  A member unknown to this release is a fault."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class StoredVersion(StoredModel):
    """A model that is a whole object.  ``what`` is its name in messages."""

    what: ClassVar[str]

    def encode(self) -> bytes:
        return self.model_dump_json(indent=1).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> Self:
        """Return the model in ``data``, the content of the object ``where``.

        Raise ``FormatUnknown`` for a later format, ``ObjectCorrupt`` for anything else that is not such a model."""
        return decode_model(cls, data, where, cls.what)


Word = Annotated[str, AfterValidator(lambda text: word(text, "text"))]
"""An identifier (``names.words``)."""
_SHOWN = 300
_FAULTS_MAX = 1000
"""Largest number of wrong members of one object that are looked at.  Each takes pydantic 10 us and some hundred bytes,
and an object may have millions."""


def _integer(value: object) -> object:
    if not is_whole(value):
        raise ValueError("it is not an integer")
    return value


Version1 = Annotated[Literal[1], BeforeValidator(_integer)]
"""The only version of a format so far.  A ``Literal`` alone would take 1.0 for 1."""
Version2 = Annotated[Literal[1, 2], BeforeValidator(_integer)]
"""Version of a format that has two."""


def decode_model(model: type[M], data: bytes, where: str, what: str, newest_format: int = 1) -> M:
    """Return the model in ``data``, the content of the object ``where``.  ``what`` is its name in messages.

    Raise ``FormatUnknown`` for a future ``format``, ``ObjectCorrupt`` for anything else that is not such a model.
    """
    try:
        found = model.model_validate_json(data, strict=True)
        JsonObject.parse(data)  # how much that is, pydantic has bounded; names that stand twice, it lets pass
        return found
    except JsonFault as error:
        raise ObjectCorrupt(f"{where} is corrupt: it is not a valid {what}: {error}", object=where) from error
    except ValidationError as error:
        if error.error_count() > _FAULTS_MAX:
            raise ObjectCorrupt(
                f"{where} is corrupt: it is not a valid {what}, and has more than {_FAULTS_MAX} wrong members",
                object=where,
            ) from None
        faults = error.errors(include_url=False, include_input=False)
        of_format = any(fault["loc"] == ("format",) for fault in faults)
        for line in error.errors() if of_format else ():
            if line["loc"] == ("format",) and is_whole(line["input"]):
                raise FormatUnknown(
                    f"{where}: {what} format {line['input']} is newer than {newest_format}; upgrade lancewal",
                    object=where,
                ) from error
        first = faults[0]
        place = str(first["loc"])[:_SHOWN]
        raise ObjectCorrupt(
            f"{where} is corrupt: it is not a valid {what}. The first wrong member is {place}: {first['msg'][:_SHOWN]}",
            object=where,
        ) from error
