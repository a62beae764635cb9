"""Options of every read besides columns and filter: they say which state of the table it reads.

``Read`` names the arguments as users write them; ``read_options`` checks them, once, and makes ``ReadOptions`` of them.
A function that reads takes ``**read: Unpack[Read]``, and hands it on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict, get_args

from lancewal_core.errors import InvalidInput
from lancewal_core.store.json_object import WHOLE_MAX
from lancewal_reader.forms.given_numbers import whole_of
from lancewal_reader.point.at import Point, point_of
from lancewal_reader.point.token import Least, least_of

TIMEOUT_S = 30.0
_SHOWN = 60
Consistency = Literal["strong", "eventual"]


class Read(TypedDict, total=False):
    """Arguments that say which state is read; all may be left out."""

    consistency: Consistency
    at: Point | str | bytes | None
    at_least: Least | str | bytes | None
    max_staleness_s: float | None
    timeout_s: float


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Checked options of a read: the state that it reads."""

    consistency: Consistency = "strong"
    at: Point | None = None
    at_least: Least | None = None
    """Token or receipt that a strong read must reach.  The read waits until then, or fails after ``timeout_s``
    seconds.
    """
    max_staleness_s: float | None = None
    """Seconds.  A strong read may use the newest strong plan of its open table again while that plan is younger.
    None: each read makes a plan.
    """
    timeout_s: float = TIMEOUT_S


def read_options(
    consistency: str = "strong",
    at: Point | str | bytes | None = None,
    at_least: Least | str | bytes | None = None,
    max_staleness_s: float | None = None,
    timeout_s: float = TIMEOUT_S,
) -> ReadOptions:
    """Check the options of a read.  Raises ``InvalidInput`` if one is wrong, or if two contradict each other."""
    if consistency not in get_args(Consistency):
        raise InvalidInput(f"consistency {consistency!r} is unknown: use 'strong' or 'eventual'")
    point, least = point_of(at), least_of(at_least)
    if point is not None and consistency != "strong":
        raise InvalidInput(
            f"at and consistency={consistency!r} cannot be given together: at says which state is read. Leave one of "
            "them out"
        )
    if max_staleness_s is not None:
        check_seconds("max_staleness_s", max_staleness_s)
    check_seconds("timeout_s", timeout_s)
    for name, given in (("at_least", least), ("max_staleness_s", max_staleness_s)):
        if given is not None and point is not None:
            raise InvalidInput(
                f"at and {name} cannot be given together: at says which state is read. Leave one of them out"
            )
        if given is not None and consistency != "strong":
            raise InvalidInput(
                f"{name} applies to strong reads, and consistency {consistency!r} sees the merged table alone. Leave "
                "one of them out"
            )
    return ReadOptions(
        "strong" if consistency == "strong" else "eventual", point, least, max_staleness_s, float(timeout_s)
    )


def check_seconds(name: str, value: object) -> None:
    seconds = value if isinstance(value, float) else whole_of(value)
    if seconds is None or not 0 <= seconds <= WHOLE_MAX:
        raise InvalidInput(f"{name}={value!r:.{_SHOWN}}: expected a number of seconds from 0 on")
