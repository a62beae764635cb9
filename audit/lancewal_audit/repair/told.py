"""Sentences of a repair, as text for people and as JSON with fields for programs."""

from __future__ import annotations

from dataclasses import dataclass, field

from lancewal_core.names.ids import Region
from lancewal_core.region.state import GenerationRecord


@dataclass(frozen=True, slots=True)
class Told:
    """A sentence for the user.  ``about`` has the fields of a log event: ``partition``, ``generation``, ``version``,
    ``object``.
    """

    message: str
    about: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message

    def as_json(self) -> dict[str, object]:
        """Return the form that commands report."""
        return {"message": self.message, **self.about}


def told(message: str, /, **about: object) -> Told:
    """Return a sentence with the fields ``about``."""
    return Told(message, about)


def of_generation(region: Region, record: GenerationRecord) -> dict[str, object]:
    """Return the fields of a generation.  Its positions are [``first``, ``next``); ``next`` is null while the generation
    is open."""
    span = {"first": record.first, "next": record.next}
    return {**region.place, "generation": record.generation, **span, "state": record.state.name}
