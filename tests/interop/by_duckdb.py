"""Answers questions about a table by DuckDB's extension for Lance, where it can be had; asked in JSON (``made.Made``)."""

from __future__ import annotations

import json
import sys
from typing import Any

import duckdb

_SQL = {"count": "SELECT count(*)", "two columns": "SELECT count(id), sum(a)", "filter": "SELECT count(*)"}


def main(asked: dict[str, Any]) -> None:
    engine = duckdb.connect()
    expected = {"count": (asked["rows"],), "two columns": (asked["rows"], asked["a"]), "filter": (asked["patched"],)}
    place = f"{asked['uri']}/tree/{asked['branch']}" if asked["branch"] else asked["uri"]
    try:
        engine.execute("INSTALL lance FROM community")
        engine.execute("LOAD lance")
    except duckdb.Error:
        for name in asked["questions"]:
            print(json.dumps([name, f"there is no extension for DuckDB {duckdb.__version__}"]))
        return
    for name in asked["questions"]:
        try:
            where = " WHERE a = 77" if name == "filter" else ""
            found = engine.execute(f"{_SQL[name]} FROM '{place}'{where}").fetchall() == [expected[name]]
            print(json.dumps([name, "right" if found else "WRONG"]))
        except duckdb.Error as error:
            print(json.dumps([name, f"{type(error).__name__}: {str(error)[:60]}".replace("|", "/")]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
