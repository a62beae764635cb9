"""Convert the options of ``lancewal table alter`` to terms of the contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import get_args

from pydantic import TypeAdapter, ValidationError

from lancewal_core.errors import InvalidInput, InvalidSettings
from lancewal_core.names.words import TOPIC_FORM, is_topic
from lancewal_core.record_keys.key_form import KEY_FORM_FORM, key_form_of
from lancewal_core.settings.durations import EXPECTED, duration_s
from lancewal_core.settings.sections import POLICIES, Start, TableSettings

_POLICIES = {
    name.removeprefix("on_").replace("_", "-"): get_args(term.annotation)
    for name, term in TableSettings.model_fields.items()
    if name.startswith("on_")
}
"""Policies that are possible for each kind of record, by the kind's name in ``--on KIND=POLICY``."""
_LATER_TERMS = frozenset({"subscription_hold_s_max", "key_forms", "on_unknown_column"})
"""Terms that the first release does not know.  A contract that has one gets format 2, which that release refuses."""
_LATER_POLICIES = frozenset(
    {
        *(("on_wrong_format", "dead-letter"), ("on_truncate", "ignore")),
        *(("on_unavailable_value", "dead-letter"), ("on_unavailable_value", "ignore")),
    }
)
"""Policies that the first release does not know, as pairs of term and policy.  A contract that has one gets format 2."""


def altered_terms(
    ttl: str, ttl_column: str, no_ttl: bool, on: Sequence[str], given: Mapping[str, str]
) -> dict[str, object]:
    """Return the new values of the terms to alter, by their names in the contract.

    ``on``: values of ``--on``, as ``KIND=POLICY``.  ``given`` maps an option of ``_TERMS`` to its text; an empty text
    alters nothing.  Raises ``InvalidInput`` if an option is invalid, or options contradict each other.
    """
    terms: dict[str, object] = {}
    if bool(ttl) != bool(ttl_column) or (no_ttl and ttl):
        raise InvalidInput("expected --ttl DURATION with --ttl-column COLUMN, or --no-ttl alone")
    if no_ttl or ttl:
        terms |= {"ttl_column": ttl_column or None, "ttl_s": _whole_s("--ttl", ttl) if ttl else None}
    for text in on:
        what, _, policy = text.partition("=")
        what = what.replace("_", "-")
        allowed = _POLICIES.get(what, POLICIES)
        if what not in _POLICIES or policy not in allowed:
            raise InvalidInput(
                f"--on {text}: expected KIND=POLICY. KIND is one of {', '.join(_POLICIES)}, "
                f"and POLICY one of {', '.join(allowed)}"
            )
        term = f"on_{what.replace('-', '_')}"
        if term in terms:
            raise InvalidInput(f"--on {text}: {what} is given twice")
        terms[term] = policy
    for option, text in given.items():
        if text:
            term, parse = _TERMS[option]
            terms[term] = parse(option, text)
    if terms.keys() & _LATER_TERMS or terms.items() & _LATER_POLICIES:
        terms["format"] = 2
    return terms


def _whole_s(option: str, text: str) -> int:
    seconds = duration_s(text)
    if seconds is None or seconds != int(seconds):
        raise InvalidInput(f"{option} {text}: {EXPECTED}, in whole seconds")
    return int(seconds)


def _topic(option: str, text: str) -> str:
    if not is_topic(text):
        raise InvalidInput(f"{option} {text!a}: expected the name of a topic: {TOPIC_FORM}")
    return text


def _key_forms(option: str, text: str) -> tuple[str, ...]:
    form = key_form_of(text)
    if form is None:
        raise InvalidInput(f"{option} {text[:80]!a}: expected {KEY_FORM_FORM}")
    return (form,)


_TERMS: Mapping[str, tuple[str, Callable[[str, str], object]]] = {
    "--history-window": ("history_window_s", _whole_s),
    "--version-window": ("version_window_s", _whole_s),
    "--subscription-hold": ("subscription_hold_s_max", _whole_s),
    "--dead-letter-topic": ("dead_letter_topic", _topic),
    "--group": ("group_id", lambda _, text: text),
    "--key-form": ("key_forms", _key_forms),
}
"""The contract's term for each option, and the function that parses the option's text.  The function gets the option's
name and text."""


def start_of(text: str) -> Start:
    """Parse the value of ``--start``; an empty text means ``earliest``.  Raises ``InvalidSettings`` if the value is
    invalid."""
    try:
        return TypeAdapter[Start](Start).validate_python(text or "earliest")
    except ValidationError as error:
        raise InvalidSettings(f"--start {text!r}: {error.errors()[0]['msg']}") from error
