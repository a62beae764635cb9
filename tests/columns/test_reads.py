"""Reads of rows of three contracts, all unmerged at once: scan, keys, counts, searches, and points of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.names import paths
from lancewal_core.names.ids import Sequence
from lancewal_core.region.generation_entries import entries_of
from lancewal_core.region.state import GenerationState
from lancewal_core.table.protocol import columns_mark
from lancewal_reader.point.at import At
from lancewal_reader.search import merged
from lancewal_reader.search import text as text_search
from lancewal_reader.table import Table, open_table
from tests.columns.three_contracts import LARGE, MERGED, NAMES, Moment, ThreeContracts, vector
from tests.reader.search.test_text import Documents
from tests.support.asked import keys_read
from tests.support.flusher_tables import OPEN_ROWS
from tests.support.pipeline import Key, Row, by_key

POINTS = ["receipt", "timestamp", "positions", "record time"]
K = 6


def of_now(rows: Mapping[Key, Row]) -> dict[Key, Row]:
    """Rows of an earlier contract with the columns of the last one: another ``old``, and ``words`` was ``text``."""
    found = {}
    for key, row in rows.items():
        there = {**row, "words": row["words"] if "words" in row else row["text"], "old": None}
        found[key] = {name: there.get(name) for name in NAMES[2]}
    return found


def check_reads(opened: Table, rows: Mapping[Key, Row], names: Seq[str], **read: Any) -> None:
    """Scan, columns, filters, counts and keys against the rows of a dict."""
    found = opened.to_arrow(**read)
    assert found.schema.names == names
    assert by_key(found) == rows
    assert opened.count_rows(**read) == len(rows)
    for name in names:
        columns = list(dict.fromkeys(["id", name, "region"]))
        assert by_key(opened.to_arrow(columns, **read)) == {
            key: {of: row[of] for of in columns} for key, row in rows.items()
        }
        passing = {key for key, row in rows.items() if row[name] is not None}
        assert by_key(opened.to_arrow(filter=f"{name} is not null", **read)).keys() == passing
        assert opened.count_rows(f"{name} is not null", **read) == len(passing)
    keys = sorted(rows)
    assert opened.get(keys, **read).to_arrow().to_pylist() == [rows[key] for key in keys]


def check_point(opened: Table, rows: Mapping[Key, Row], names: Seq[str], **read: Any) -> None:
    """A scan, a count by a filter, and keys."""
    found = opened.to_arrow(**read)
    assert found.schema.names == names
    assert by_key(found) == rows
    name = next(name for name in ("said", "words", "text") if name in names)
    passing = [key for key, row in rows.items() if row[name] is not None and row["n"] is not None]
    assert opened.count_rows(f"{name} is not null and n is not null", **read) == len(passing)
    assert opened.get(passing[::9], [name, "n"], **read).to_arrow().to_pylist() == [
        {name: rows[key][name], "n": rows[key]["n"]} for key in passing[::9]
    ]


def test_rows_of_all_three_are_unmerged(made: ThreeContracts) -> None:
    """What the other tests begin at."""
    opened, by_generation = made._opened(), []
    for region, state in opened.states.read(made.contract.regions).items():
        merged, *unmerged = state.generations
        assert merged.state is GenerationState.MERGED
        assert [record.state.name for record in unmerged] == ["FLUSHED"] * 3 + ["OPEN"]
        ended = [(region, record) for record in unmerged[:-1]]
        by_generation += [[entry.contract_version for entry in entries_of(opened, *of)] for of in ended]
    found = [sorted(set(versions)) for versions in by_generation]
    assert found == [[1], [1, 2], [2, 5]] * 2
    pinned = made.table.newest()
    assert columns_mark(pinned) == made.contract.columns_change
    assert pinned.schema.names == made.contract.rows.table.names == NAMES[2]
    assert [state.names for state in made.moments] == [NAMES[0], *NAMES]
    assert lance.dataset(made.uri).count_rows() == MERGED


def test_scan_get_and_count(made: ThreeContracts) -> None:
    kept = open_table(made.uri)
    for opened in (kept, kept, open_table(made.uri)):
        check_reads(opened, made.oracle, NAMES[2])
    large = {key for key, row in made.oracle.items() if row["n"] is not None and row["n"] >= LARGE}
    assert len(large) > 10
    assert by_key(kept.to_arrow(filter=f"n >= {LARGE}")).keys() == large
    merged_rows = of_now(made.moments[0].rows)
    assert by_key(kept.to_arrow(consistency="eventual")) == merged_rows
    assert kept.head(5).num_rows == 5


def test_bundles(made: ThreeContracts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle has segments of one contract.  There is one of each, and a read asks for it, and for no segment in it."""
    bundles = [
        (info.key, found)
        for info in made.store.list(paths.WAL)
        if (found := paths.parse_wal_bundle(info.key)) is not None
    ]
    assert len(bundles) == 3
    asked = keys_read(made.store, monkeypatch)
    for state in made.moments:
        asked.clear()
        assert by_key(open_table(made.uri).to_arrow(at=state.points["receipt"])) == state.rows
        read = [bundle for key, bundle in bundles if key in asked]
        copied = {paths.wal_segment(log, Sequence(n)) for log, first, last in read for n in range(first, last + 1)}
        assert not copied & set(asked)
    assert by_key(open_table(made.uri).to_arrow()) == made.oracle
    assert set(asked) & {key for key, _ in bundles}


@pytest.mark.parametrize("kind", POINTS)
def test_points(made: ThreeContracts, kind: str) -> None:
    """Positions and record times name no time of the table, so they show its newest columns."""
    opened = open_table(made.uri)
    for state in (*made.moments, *reversed(made.moments)):
        point = state.points[kind]
        if kind in ("receipt", "timestamp"):
            check_point(opened, state.rows, state.names, at=point)
        else:
            rows = state.rows if state is made.moments[-1] else of_now(state.rows)
            check_point(opened, rows, NAMES[2], at=point)


def test_tokens(made: ThreeContracts) -> None:
    for state in made.moments:
        check_point(open_table(made.uri), made.oracle, NAMES[2], at_least=state.token)


def test_versions(made: ThreeContracts) -> None:
    """Each shows its own columns: those of the merged rows, at any step of the changes."""
    opened, newest = open_table(made.uri), lance.dataset(made.uri).version
    seen = []
    base = made.moments[0].rows
    for version in range(newest, 0, -1):
        plain = lance.dataset(made.uri, version=version)
        if plain.count_rows() == 0:
            break
        names = plain.schema.names
        rows = base if "text" in names else of_now(base)
        if "old" in names and plain.schema.field("old").type == pa.string():
            rows = {key: {**row, "old": base[key]["old"]} for key, row in rows.items()}
        rows = {key: {name: row[name] for name in names} for key, row in rows.items()}
        seen.append(names)
        check_point(opened, rows, names, at=At.version(version))
        assert by_key(plain.to_table()) == rows
    assert all(names in seen for names in NAMES)


def test_points_once_all_is_merged(table: ThreeContracts) -> None:
    """The same states again from the merged table's versions, flushes and logs."""
    table.merge_all(OPEN_ROWS)
    opened = open_table(table.uri)
    check_point(opened, table.oracle, NAMES[2])
    check_point(opened, table.oracle, NAMES[2], consistency="eventual")
    for state in table.moments:
        for kind, point in state.points.items():
            now = kind not in ("receipt", "timestamp") and state is not table.moments[-1]
            rows, names = (of_now(state.rows), NAMES[2]) if now else (state.rows, state.names)
            check_point(opened, rows, names, at=point)


# -- searches -----------------------------------------------------------------------------------------------------


@pytest.fixture
def by_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes are asked also of a small table, and for few rows at first."""
    monkeypatch.setattr(merged, "FLAT_ROWS_MAX", 0)
    monkeypatch.setattr(text_search, "ASKED_MIN", 1)


def check_vectors(opened: Table, state: Moment, column: str, query: list[float], *, exact: bool, **read: Any) -> Any:
    there = {key: row[column] for key, row in state.rows.items() if row[column] is not None}
    far = {key: float(((np.array(of) - np.array(query)) ** 2).sum()) for key, of in there.items()}
    found = opened.search(query, limit=K, vector_column=column, exact=exact, nprobes=2, **read)
    rows = found.to_arrow().to_pylist()
    keys = [(row["region"], row["id"]) for row in rows]
    shown = [row.pop("_distance") for row in rows]
    assert len(set(keys)) == K
    assert shown == pytest.approx(sorted(far.values())[:K], rel=1e-5, abs=1e-5)
    assert shown == pytest.approx([far[key] for key in keys], rel=1e-5, abs=1e-5)
    assert rows == [state.rows[key] for key in keys]
    return found.coverage


def check_words(opened: Table, state: Moment, column: str, query: str, *, exact: bool, **read: Any) -> Any:
    texts = dict(enumerate(row[column] for row in state.rows.values()))
    documents, keys = Documents(texts), list(state.rows)
    scores = {keys[at]: documents.total(at, query.split()) for at, text in texts.items() if text}
    right = sorted((score for score in scores.values() if score), reverse=True)
    found = opened.search(text=query, text_columns=[column], limit=K, exact=exact, **read)
    rows = found.to_arrow().to_pylist()
    shown = [row.pop("_score") for row in rows]
    assert shown == pytest.approx(right[:K], rel=1e-5, abs=1e-6)
    assert shown == pytest.approx([scores[row["region"], row["id"]] for row in rows], rel=1e-5, abs=1e-6)
    assert rows == [state.rows[row["region"], row["id"]] for row in rows]
    return found.coverage


WORDS = ["w1", "w33", "w2 w22", "w3 w21", "w9"]
QUERIES = [vector(9), vector(3, 3), vector(7, 7), [0.1, 0.2, 0.3, 0.4]]


@pytest.mark.parametrize("exact", [True, False], ids=["brute force", "index"])
@pytest.mark.usefixtures("by_index")
def test_searches(made: ThreeContracts, exact: bool) -> None:
    """Now, and at the receipt of each state, where the indexed text column has its name of then."""
    opened = open_table(made.uri)
    points = [(made.moments[-1], {}), *((state, {"at": state.points["receipt"]}) for state in made.moments)]
    for state, read in points:
        text = "words" if "words" in state.names else "text"
        for query in QUERIES:
            by_w = check_vectors(opened, state, "w", query, exact=exact, **read)
            check_vectors(opened, state, "v", query, exact=True, **read)
            assert (by_w.indexed_rows == MERGED) == (not exact)
        for words in WORDS:
            by_words = check_words(opened, state, text, words, exact=exact, **read)
            assert exact or by_words.indexed_rows == MERGED


def test_a_search_by_both_and_a_filter_of_changed_columns(made: ThreeContracts) -> None:
    opened, rows = open_table(made.uri), made.oracle
    found = opened.search(vector(9), "w1 w33", limit=K, vector_column="w", text_columns=["words"], exact=True)
    assert all(
        {name: row[name] for name in NAMES[2]} == rows[row["region"], row["id"]] for row in found.to_arrow().to_pylist()
    )
    near = opened.search(vector(9), limit=50, vector_column="w", filter=f"n >= {LARGE} or old = 5 or note = 'none'")
    passing = {
        key
        for key, row in rows.items()
        if row["w"] is not None and ((row["n"] or 0) >= LARGE or row["old"] == 5 or row["note"] == "none")
    }
    assert len(passing) > 8
    assert {(row["region"], row["id"]) for row in near.to_arrow().to_pylist()} == passing
