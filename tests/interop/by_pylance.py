"""Answers questions about a table by pylance, in an environment without lancewal.  Its argument is JSON (``made.Made``)."""

from __future__ import annotations

import json
import sys
from typing import Any


def main(asked: dict[str, Any]) -> None:
    import lance

    opened: Any = None
    for name in asked["questions"]:
        try:
            if name == "list":
                print(json.dumps([name, "right" if _listed(asked) == (asked["names"], []) else "WRONG"]))
                continue
            if opened is None:
                named = asked["namespace"] and {"namespace_client": _namespace(asked), "table_id": [asked["name"]]}
                opened = lance.dataset(**named) if named else lance.dataset(asked["uri"])
                if asked["branch"]:
                    opened = opened.checkout_version((asked["branch"], None))
            found = _answer(opened, name, asked)
            print(json.dumps([name, "right" if found else "WRONG"]))
        except BaseException as error:
            print(json.dumps([name, f"{type(error).__name__}: {str(error)[:60]}".replace("|", "/")]))
        sys.stdout.flush()


def _namespace(asked: dict[str, Any]) -> Any:
    import lance_namespace

    return lance_namespace.connect(*asked["namespace"])


def _listed(asked: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the names of tables and of namespaces."""
    from lance_namespace import ListNamespacesRequest, ListTablesRequest

    namespace = _namespace(asked)
    tables = namespace.list_tables(ListTablesRequest(id=[])).tables
    return sorted(tables), sorted(namespace.list_namespaces(ListNamespacesRequest(id=[])).namespaces)


def _answer(dataset: Any, name: str, asked: dict[str, Any]) -> bool:
    if name == "count":
        return bool(dataset.count_rows() == asked["rows"])
    if name == "two columns":
        rows = dataset.to_table(columns=["id", "a"])
        return (rows.num_rows, sum(a or 0 for a in rows["a"].to_pylist())) == (asked["rows"], asked["a"])
    if name == "all columns":
        rows = dataset.to_table()
        if asked["expected"]:
            with open(asked["expected"]) as file:
                return bool(sorted(list(row.values()) for row in rows.to_pylist()) == json.load(file))
        return bool(rows.num_rows == asked["rows"])
    if name == "filter":
        return bool(dataset.to_table(filter="a = 77").num_rows == asked["patched"])
    if name == "take":
        return bool(dataset.take([0, 3, 5]).num_rows == 3)
    import duckdb

    # DuckDB finds the table by the name of this variable.
    found: Any = duckdb.sql("SELECT count(*), sum(a) FROM dataset")
    return bool(found.fetchall() == [(asked["rows"], asked["a"])])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
