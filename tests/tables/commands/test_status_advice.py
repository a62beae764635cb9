"""`lancewal status` gives each advice once, however many partitions it is for."""

from __future__ import annotations

import re
from dataclasses import replace

from lancewal_core.process.status.facts import TableFacts
from lancewal_core.process.status.report import problems_of, table_diagnosis
from lancewal_tables.commands.status import status_text
from tests.support.shown_status import NOW, shown_status


def test_partitions_with_one_advice_show_it_once() -> None:
    status = shown_status(12)
    (stopped,) = (found for found in status.partitions if found.partition == 3)
    stopped = replace(stopped, diagnosis=replace(stopped.diagnosis, do="Restart the producer."))
    found = [replace(stopped, partition=partition) for partition in range(5)]
    table = TableFacts(NOW, "orders")
    problems = problems_of(table, found)
    assert len(problems) == 5
    assert all(stopped.diagnosis.message in problem for problem in problems)
    assert sum(stopped.diagnosis.do in problem for problem in problems) == 1
    shown = status_text(
        replace(status, partitions=tuple(found), problems=tuple(problems), diagnosis=table_diagnosis(table, found))
    )
    assert len(re.findall(re.escape(stopped.diagnosis.do), shown)) == 1
    assert shown.count("problem: ") == 5
