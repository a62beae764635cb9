"""Convert the options of ``lancewal table alter`` to terms of the contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lancewal_core.errors import InvalidInput, InvalidSettings
from lancewal_core.names.words import TOPIC_FORM, is_topic
from lancewal_core.record_keys.key_form import KEY_FORM_FORM, key_form_of
from lancewal_core.settings.durations import EXPECTED, duration_s
from lancewal_core.settings.sections import POLICIES

if TYPE_CHECKING:
    from lancewal_core.settings.sections import Start

_WINDOWS = {
    "--history-window": "history_window_s",
    "--version-window": "version_window_s",
    "--subscription-hold": "subscription_hold_s_max",
}
_LETTERS = "--dead-letter-topic"
_KEY_FORM = "--key-form"
_NAMED = {_LETTERS: "dead_letter_topic", "--group": "group_id"}
_ON = {
    "bad-record": "on_bad_record",
    "wrong-format": "on_wrong_format",
    "unknown-schema": "on_unknown_schema",
    "other-record": "on_other_record",
    "misrouted": "on_misrouted",
    "truncate": "on_truncate",
    "unavailable-value": "on_unavailable_value",
    "unknown-column": "on_unknown_column",
}
_OTHER_POLICIES = {
    "on_unknown_column": ("reject", "ignore", "add"),
    "on_wrong_format": ("stop", "dead-letter"),
    "on_unknown_schema": ("stop", "dead-letter"),
    "on_truncate": ("stop", "ignore"),
}
"""Policies of terms that do not have all of ``POLICIES``."""
_OF_FORMAT_2 = (
    *(("on_wrong_format", "dead-letter"), ("on_truncate", "ignore")),
    *(("on_unavailable_value", "dead-letter"), ("on_unavailable_value", "ignore")),
)


def altered_terms(
    ttl: str, ttl_column: str, no_ttl: bool, windows: Mapping[str, str], on: Sequence[str], named: Mapping[str, str]
) -> dict[str, object]:
    """Return the new values of the terms to alter, by their names in the contract.

    ``windows`` and ``named`` map an option to its text; an empty text alters nothing.  ``named`` has the dead-letter
    topic, the consumer group and a further form of keys.  ``InvalidInput``: an option is invalid, or options contradict
    each other.
    """
    terms: dict[str, object] = {}
    if bool(ttl) != bool(ttl_column) or (no_ttl and ttl):
        raise InvalidInput("expected --ttl DURATION with --ttl-column COLUMN, or --no-ttl alone")
    if no_ttl or ttl:
        terms |= {"ttl_column": ttl_column or None, "ttl_s": _whole_s("--ttl", ttl) if ttl else None}
    for option, text in windows.items():
        if text:
            terms[_WINDOWS[option]] = _whole_s(option, text)
            if option == "--subscription-hold":
                terms["format"] = 2  # older releases know no such term
    for text in on:
        what, _, policy = text.partition("=")
        term = _ON.get(what.replace("_", "-"))
        allowed = _OTHER_POLICIES.get(term or "", POLICIES)
        if term is None or policy not in allowed:
            raise InvalidInput(f"--on {text}: expected one of {', '.join(_ON)}, then = and one of {', '.join(allowed)}")
        if term in terms:
            raise InvalidInput(f"--on {text}: {what} is given twice")
        terms[term] = policy
        if term == "on_unknown_column" or (term, policy) in _OF_FORMAT_2:
            terms["format"] = 2  # older releases know no such term
    for option, text in named.items():
        if option == _LETTERS and text and not is_topic(text):
            raise InvalidInput(f"{option} {text!a}: expected the name of a topic: {TOPIC_FORM}")
        if text and option == _KEY_FORM:
            form = key_form_of(text)
            if form is None:
                raise InvalidInput(f"{option} {text[:80]!a}: expected {KEY_FORM_FORM}")
            terms |= {"key_forms": (form,), "format": 2}  # older releases know no such term
        elif text:
            terms[_NAMED[option]] = text
    return terms


def _whole_s(option: str, text: str) -> int:
    seconds = duration_s(text)
    if seconds is None or seconds != int(seconds):
        raise InvalidInput(f"{option} {text}: {EXPECTED}, in whole seconds")
    return int(seconds)


def start_of(text: str) -> Start:
    """Parse the value of ``--start``; an empty text means ``earliest``.  ``InvalidSettings`` if the value is invalid."""
    from pydantic import TypeAdapter, ValidationError

    from lancewal_core.settings.sections import Start

    try:
        return TypeAdapter[Start](Start).validate_python(text or "earliest")
    except ValidationError as error:
        raise InvalidSettings(f"--start {text!r}: {error.errors()[0]['msg']}") from error
