"""The envelope around the rows of one contract."""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_core.settings.sections import Envelope
from lancewal_core.table.contract import Contract


@dataclass(frozen=True, slots=True)
class EnvelopeRules:
    """Rules of a contract about the envelope of its values."""

    kind: Envelope = "none"
    skips_snapshots: bool = False
    """Whether rows that a snapshot has read are passed over."""


NO_ENVELOPE = EnvelopeRules()


def envelope_of(contract: Contract) -> EnvelopeRules:
    """Return the envelope of the values that a contract takes."""
    return EnvelopeRules(contract.envelope, contract.snapshot_rows == "skip")
