"""What a deployment is expected to ask: sums of what was counted, contention, money, and how it is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import steady
from lancewal_core.cli.estimate.counted import SIZES, asked, counted
from lancewal_core.cli.estimate.deployment import Deployment
from lancewal_core.cli.estimate.expected import MONTH_S, WRITTEN_PER_BYTE, Prices, expected, tries
from lancewal_core.cli.program import run

RESULTS = Path(__file__).parents[4] / "benchmarks" / "results"
SOME = Deployment(
    rows_per_s=10_000,
    row_bytes=200,
    partitions=64,
    members=2,
    latency_s=0.03,
    freshness_s=None,
    readers=0,
    read_every_s=0,
)


def test_at_sizes_that_were_counted_an_act_asks_what_was_counted() -> None:
    for act, at in counted().items():
        for size in SIZES:
            if size.name in at:
                assert asked(act, size).requests == pytest.approx(at[size.name].requests), act


@pytest.mark.parametrize(("swaps_per_s", "latency_s"), [(0.5, 0.03), (3.0, 0.03), (2.0, 0.1)])
def test_swaps_of_a_page_contend_as_in_a_play_of_them(swaps_per_s: float, latency_s: float) -> None:
    """Each looks, puts, and looks again where another one has put since it looked."""
    rng = np.random.default_rng(11)
    landed = float("-inf")
    tried = done = 0
    # By the time of the next put: (put at, looked at).
    puts = [(begin + 2 * latency_s, begin) for begin in np.cumsum(rng.exponential(1 / swaps_per_s, 4_000)).tolist()]
    puts.sort(reverse=True)
    while puts:
        at, looked = puts.pop()
        tried += 1
        if landed < looked:
            landed, done = at, done + 1
            continue
        puts.append((at + 2 * latency_s, at))
        puts.sort(reverse=True)
    assert done == 4_000
    assert tries(swaps_per_s, latency_s) == pytest.approx(tried / done, rel=0.12)


def test_an_idle_table_asks_little_and_everything_grows_with_what_it_follows() -> None:
    little = expected(replace(SOME, rows_per_s=0.001, partitions=4, members=1)).per_s
    assert little.requests < 4
    base = expected(SOME).per_s
    assert expected(replace(SOME, members=4)).per_s.put > 1.8 * base.put
    assert expected(replace(SOME, partitions=512)).per_s.get > base.get
    assert expected(replace(SOME, freshness_s=5.0)).per_s.put < base.put / 9
    assert expected(replace(SOME, readers=3)).per_s.get > base.get + 3 * expected(SOME).pace.segments_per_s


def test_money_is_requests_and_bytes_times_prices() -> None:
    found = expected(replace(SOME, readers=1))
    money = found.money(Prices(put=1_000, get=2_000, stored=3, fetched=4))
    assert money["put_and_list"] == pytest.approx((found.per_s.put + found.per_s.list) * MONTH_S)
    assert money["get"] == pytest.approx(2 * found.per_s.get * MONTH_S)
    assert money["history"] == pytest.approx(3 * 10_000 * 200 * 86_400 / 1e9)
    assert money["fetched"] == pytest.approx(4 * 10_000 * 200 * MONTH_S / 1e9)


def test_what_is_written_beside_the_log_is_as_measured() -> None:
    figures = json.loads((RESULTS / "write-amplification.json").read_text())["figures"]
    assert pytest.approx(figures["everything_but_wal_ratio"], rel=0.1) == WRITTEN_PER_BYTE


@pytest.mark.parametrize(
    "partitions", [4, 64]
)  # of 512, two cores had no time for a segment whenever one might be sent
def test_what_running_services_asked_was_expected_within_a_quarter(partitions: int) -> None:
    counted = json.loads((RESULTS / "steady.json").read_text())["figures"][f"requests_{partitions}"]
    assert steady.expected_requests(partitions) == pytest.approx(counted, rel=0.25)


def test_the_command_says_it_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    wished = ["estimate", "--rows-per-s", "10000", "--partitions", "64", "--members", "2"]
    assert run(wished) == 0
    text = capsys.readouterr().out
    assert "a row is seen after" in text
    assert run([*wished, "-o", "json", "--put-price", "0", "--stored-price", "0"]) == 0
    found = json.loads(capsys.readouterr().out)
    per_s = expected(SOME).per_s
    assert found["requests_per_s"]["put"] == pytest.approx(per_s.put)
    acts = found["requests_per_s"]["by_act"].values()
    assert sum(act["list"] for act in acts) == pytest.approx(per_s.list)
    assert found["money_per_month"]["total"] == pytest.approx(found["money_per_month"]["get"])


@pytest.mark.parametrize(
    ("store", "classes"),
    [
        ("s3", {"PUT, COPY, POST, LIST": ("put", "list"), "GET and others": ("get",), "free": ("delete",)}),
        ("gcs", {"class A": ("put", "list"), "class B": ("get",), "free": ("delete",)}),
        (
            "azure",
            {
                "write": ("put",),
                "list and create container": ("list",),
                "read": ("get",),
                "other": ("delete",),
                "free": ("delete",),
            },
        ),
    ],
)
def test_each_cloud_has_its_classes_of_price(
    store: str, classes: dict[str, tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    wished = ["estimate", "--rows-per-s", "10000", "--partitions", "64", "--members", "2", "--store", store]
    assert run([*wished, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    month = found["requests_per_month"]
    counted_by_class = month["by_price_class"]
    assert counted_by_class.keys() == classes.keys()
    for name, kinds in classes.items():
        assert counted_by_class[name] == pytest.approx(sum(month[kind] for kind in kinds))
    assert (found["money_per_month"] is None) == (store != "s3")
    assert run(wished) == 0
    text = capsys.readouterr().out
    for name, number in counted_by_class.items():
        assert f"requests a month, {name} " in text
        assert f"{number:,.0f}" in text
    assert ("money a month" in text) == (store == "s3")
    assert run([*wished, "--get-price", "0.1"]) == (0 if store == "s3" else 2)
    assert ("--get-price: prices are for --store s3" in capsys.readouterr().err) == (store != "s3")


def test_a_wish_that_cannot_be_fulfilled_ends_with_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", "--rows-per-s", "10", "--partitions", "4", "--freshness", "100ms"]) == 2
    assert capsys.readouterr().err.startswith("lancewal: wish_unreachable: ")
    assert run(["estimate", "--rows-per-s", "10", "--partitions", "4", "--freshness", "soon"]) == 2
    assert "--freshness 'soon'" in capsys.readouterr().err
