"""A process that runs programs of a page, and kills itself at a point between its outputs.

``python -m tests.kept.keeper PROGRAM [POINT:WHEN:N]``: run this file of Python.  At the n-th passing of the point it gets
SIGKILL.  The points are calls that the programs make:

========================  ===============================================
``subscription.create``   a subscription is made
``copy.create``           the copy is made, in one commit of Lance
``copy.write``            new rows are written, and nothing is committed
``copy.commit``           the copy is committed, with the receipt
``sums.commit``           a transaction of SQLite
``subscription.commit``   a receipt is committed to the subscription
========================  ===============================================
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
from lance.dataset import MergeInsertBuilder

from lancewal_reader.subscriptions import Subscriptions

POINTS = ("subscription.create", "copy.create", "copy.write", "copy.commit", "sums.commit", "subscription.commit")


def main(program: Path, kill: str) -> None:
    passed: Counter[str] = Counter()

    def passing(point: str) -> None:
        passed[point] += 1
        if kill == f"{point}:{passed[point]}":
            os.kill(os.getpid(), signal.SIGKILL)

    def at(point: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            passing(f"{point}:before")
            result = call(*arguments, **named)
            passing(f"{point}:after")
            return result

        return called

    class Connection(sqlite3.Connection):
        commit = at("sums.commit", sqlite3.Connection.commit)

    connect = sqlite3.connect
    patches: list[tuple[Any, str, Callable[..., Any]]] = [
        (Subscriptions, "create", at("subscription.create", Subscriptions.create)),
        (Subscriptions, "commit", at("subscription.commit", Subscriptions.commit)),
        (lance, "write_dataset", at("copy.create", lance.write_dataset)),
        (lance.LanceDataset, "commit", staticmethod(at("copy.commit", lance.LanceDataset.commit))),
        (MergeInsertBuilder, "execute_uncommitted", at("copy.write", MergeInsertBuilder.execute_uncommitted)),
        (sqlite3, "connect", lambda place: connect(place, factory=Connection)),
    ]
    for owner, name, call in patches:
        setattr(owner, name, call)
    exec(compile(program.read_text(), str(program), "exec"), {})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if sys.argv[2:] else "")
