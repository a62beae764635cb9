"""Options of ``table alter`` as terms of the contract, and which belong together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from lancewal_core.cli.options import Asked
from lancewal_core.errors import InvalidInput
from lancewal_tables.commands.alter_terms import altered_terms
from lancewal_tables.commands.table import alter


def terms(
    ttl: str = "",
    column: str = "",
    no_ttl: bool = False,
    window: str = "",
    on: Sequence[str] = (),
    *,
    letters: str = "",
    group: str = "",
    form: str = "",
) -> dict[str, object]:
    given = {"--history-window": window, "--dead-letter-topic": letters, "--group": group, "--key-form": form}
    return altered_terms(ttl, column, no_ttl, on, given)


def test_terms() -> None:
    assert altered_terms("", "", False, [], {"--version-window": "30d"}) == {"version_window_s": 30 * 86400}
    hold = altered_terms("", "", False, [], {"--subscription-hold": "3d"})
    assert hold == {"subscription_hold_s_max": 3 * 86400, "format": 2}
    assert terms() == {}
    assert terms(group="new") == {"group_id": "new"}
    guid = "8d3c3b4e-0f5a-4c0e-9d0b-6f1e2a3b4c5d"
    forms = {
        "7": "id-7",
        "id-7": "id-7",
        "header-7": "header-id-7",
        guid.upper(): f"guid-{guid}",
        f"header-guid-{guid}": f"header-guid-{guid}",
        "4294967295": "id-4294967295",
        "7.1.0": "id-7.1.0",
        "header-id-7.2147483647": "header-id-7.2147483647",
    }
    assert [terms(form=text) for text in forms] == [{"key_forms": (form,), "format": 2} for form in forms.values()]
    assert terms("30d", "at") == {"ttl_column": "at", "ttl_s": 30 * 86400}
    assert terms(no_ttl=True, window="2d") == {"ttl_column": None, "ttl_s": None, "history_window_s": 2 * 86400}
    assert terms(on=["unknown-column=ignore"]) == {"on_unknown_column": "ignore", "format": 2}
    assert terms(on=["wrong-format=dead-letter"]) == {"on_wrong_format": "dead-letter", "format": 2}
    assert terms(on=["wrong-format=stop"]) == {"on_wrong_format": "stop"}
    assert terms(on=["misrouted=dead-letter", "bad-record=ignore"], letters="d") == {
        "on_misrouted": "dead-letter", "on_bad_record": "ignore", "dead_letter_topic": "d",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"ttl": "30d"}, "--ttl DURATION with --ttl-column COLUMN"),
        ({"column": "at"}, "--ttl DURATION with --ttl-column COLUMN"),
        ({"ttl": "30d", "column": "at", "no_ttl": True}, "--no-ttl alone"),
        ({"ttl": "30", "column": "at"}, "--ttl 30: expected an integer and ms, s, m, h or d"),
        ({"window": "500ms"}, "--history-window 500ms: .*whole seconds"),
        (
            {"on": ["misrouted=dlq"]},
            "--on misrouted=dlq: expected KIND=POLICY. KIND is one of bad-record, wrong-format, unknown-schema, "
            "other-record, misrouted, truncate, "
            "unavailable-value, unknown-column, and POLICY one of stop",
        ),
        (
            {"on": ["unknown=stop"]},
            "--on unknown=stop: expected KIND=POLICY. KIND is one of bad-record, wrong-format",
        ),
        ({"on": ["misrouted"]}, "--on misrouted: expected"),
        ({"letters": "dead\nletters"}, r"--dead-letter-topic 'dead\\nletters': expected the name of a topic"),
        ({"letters": " "}, "expected the name of a topic"),
        ({"letters": ".."}, "expected the name of a topic"),
        ({"letters": "t" * 250}, "expected the name of a topic: 1 to 249"),
        ({"on": ["unknown-column=stop"]}, "and POLICY one of reject, ignore, add"),
        ({"on": ["wrong-format=ignore"]}, "and POLICY one of stop, dead-letter"),
        ({"on": ["misrouted=stop", "misrouted=ignore"]}, "misrouted is given twice"),
        ({"form": "4294967296"}, "--key-form '4294967296': expected a schema's number from 1 to 2"),
        ({"form": "id-0"}, "expected a schema's number"),
        ({"form": "header-0"}, "expected a schema's number"),
        ({"form": "07"}, "--key-form '07': expected"),
        ({"form": "-1"}, "expected a schema's number"),
        ({"form": "²"}, "expected a schema's number"),
        ({"form": "header-"}, "expected a schema's number"),
        ({"form": "orders-key"}, "expected a schema's number"),
        ({"form": "header-header-7"}, "expected a schema's number"),
        ({"form": "7."}, "expected a schema's number"),
        ({"form": "7.01"}, "expected a schema's number"),
        ({"form": "7" + ".1" * 65}, "expected a schema's number"),
        ({"form": "none.1"}, "expected a schema's number"),
    ],
)
def test_what_says_nothing_or_two_things(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        terms(**given)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"partitions": 4, "on": ["misrouted=stop"]},
        {"partitions": 4, "topic_id": "x"},
        {"topic_id": "x", "no_ttl": True},
        {"start": "latest", "on": ["misrouted=stop"]},
    ],
)
def test_one_change_at_a_time(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="name one change"):
        alter(Asked(), **options)
