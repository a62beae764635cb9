"""The dashboard of the systems that lancewal depends on: the object store, Kafka, a catalog in PostgreSQL, and the machine."""

from __future__ import annotations

from watch.dashboards.panel import Board, Panel, Section, q, rate

STORE = Section(
    "Object store",
    (
        Panel(
            "Requests by outcome",
            "lancewal's own requests per second. absent and taken are answers; failed and unknown are faults.",
            "Faults: Requests tried again shows the operation. taken: an object is there already, mostly of another process.",
            [rate("lancewal_store_requests_total", "outcome")],
            "store_down",
            ("LancewalStoreErrors",),
            unit="reqps",
        ),
        Panel(
            "Share of faults",
            "Share of the requests that failed or whose outcome is unknown.",
            "Above a few percent work stops: rights, quota, or the network. The logs have the store's error code.",
            [
                q(
                    'sum(rate(lancewal_store_requests_total{outcome=~"failed|unknown",@}[$__rate_interval]))'
                    " / sum(rate(lancewal_store_requests_total{@}[$__rate_interval]))"
                )
            ],
            "store_down",
            ("LancewalStoreErrors",),
            unit="percentunit",
            limit=0.05,
        ),
        Panel(
            "Requests by object",
            "The eight kinds of objects with the most requests.",
            "Normally most are segments and state pages. Many probes or listings: see the log.",
            [q("topk(8, sum by (object) (rate(lancewal_store_requests_total{@}[$__rate_interval])))", "{{object}}")],
            "load",
            unit="reqps",
        ),
        Panel(
            "Time of requests",
            "99th percentile of the time of requests, by operation.",
            "Slow PUTs make rows durable late; slow GETs delay reads and merges.",
            [
                q(
                    "histogram_quantile(0.99, sum by (le, operation) ("
                    "rate(lancewal_store_request_seconds_bucket{@}[$__rate_interval])))",
                    "{{operation}}",
                )
            ],
            "store_slow",
            ("LancewalStoreSlow",),
            unit="s",
        ),
        Panel(
            "PUTs of segments",
            "Median and 99th percentile of the time of PUTs of segments, which make rows durable.",
            "Slow: see the store's own metrics, the network, and the size of segments.",
            [
                q(
                    f"histogram_quantile({share}, sum by (le) ("
                    'rate(lancewal_store_request_seconds_bucket{operation="put",object="segment",@}[$__rate_interval])))',
                    f"p{share * 100:g}",
                )
                for share in (0.5, 0.99)
            ],
            "store_slow",
            ("LancewalStoreSlow",),
            unit="s",
            limit=2,
        ),
        Panel(
            "Bytes",
            "Bytes read and written per second, without Lance's own.",
            "Much read: merges and takeovers. Much written: segments.",
            [
                q("sum(rate(lancewal_store_read_bytes_total{@}[$__rate_interval]))", "read"),
                q("sum(rate(lancewal_store_written_bytes_total{@}[$__rate_interval]))", "written"),
            ],
            "load",
            unit="Bps",
        ),
        Panel(
            "Requests tried again",
            "Requests per minute that repeat a request which failed or whose outcome was unknown.",
            "A few are normal on a real store. As many as all requests: the store does not answer.",
            [
                q(
                    "60 * sum by (operation) (rate(lancewal_store_retries_total{@}[$__rate_interval])) or vector(0)",
                    "{{operation}}",
                )
            ],
            "store_down",
            ("LancewalStoreErrors",),
            width=24,
        ),
    ),
)

KAFKA = Section(
    "Kafka, as ingest's client sees it",
    (
        Panel(
            "Brokers connected",
            "Brokers to which each process has a connection.",
            "0: Kafka or the network is down; the log of the process has the client's errors.",
            [q("min by (instance) (lancewal_kafka_connected_brokers{@})", "{{instance}}")],
            "broker_gone",
            ("LancewalBrokersUnreachable",),
        ),
        Panel(
            "Records and bytes received",
            "Bytes and records per second received from the brokers.",
            "Far more bytes than the rows take: records are large, or are fetched again after takeovers.",
            [
                q("sum(rate(lancewal_kafka_received_bytes_total{@}[$__rate_interval]))", "bytes"),
                q("sum(rate(lancewal_kafka_received_records_total{@}[$__rate_interval]))", "records"),
            ],
            "load",
        ),
        Panel(
            "Fetched and not taken",
            "Bytes of fetched records in the client's queue.",
            "Full all the time: ingest takes records more slowly than Kafka brings them.",
            [q("max by (instance) (lancewal_kafka_fetch_queue_bytes{@})", "{{instance}}")],
            "burst",
            ("LancewalIngestThrottled",),
            unit="bytes",
        ),
        Panel(
            "Round trip",
            "99th percentile of the slowest broker's answers in the last window, and the longest throttling by a broker.",
            "Throttled: a Kafka quota. Slow: the brokers or the network.",
            [
                q("max by (instance) (lancewal_kafka_round_trip_seconds{@})", "{{instance}}"),
                q("max by (instance) (lancewal_kafka_throttle_seconds{@})", "throttled {{instance}}"),
            ],
            "load",
            unit="s",
        ),
        Panel(
            "Rebalances",
            "Rebalances of the consumer group since each process started.",
            "Some with every restart. A steady rise: a member joins and leaves repeatedly.",
            [q("sum by (instance) (lancewal_kafka_rebalances_total{@})", "{{instance}}")],
            "takeover",
            ("LancewalOwnersFight",),
        ),
        Panel(
            "Since the last poll",
            "Time since the consumer was last polled.",
            "Near max.poll.interval.ms the broker takes the partitions away.",
            [q("max by (instance) (lancewal_kafka_poll_age_seconds{@})", "{{instance}}")],
            "frozen",
            ("LancewalOwnersFight",),
            unit="s",
        ),
        Panel(
            "Failed requests to brokers",
            "Requests to brokers per minute that failed or timed out.",
            "Many: brokers that come and go, or a network that loses packets.",
            [
                q(
                    "60 * sum by (instance) (rate(lancewal_kafka_request_failures_total{@}[$__rate_interval]))",
                    "{{instance}}",
                )
            ],
            "broker_gone",
            ("LancewalBrokersUnreachable",),
            width=24,
        ),
    ),
)

CATALOG = Section(
    "Catalog",
    (
        Panel(
            "Catalog silent",
            "Time since the catalog in PostgreSQL stopped accepting each table's state; 0 while it accepts it.",
            "Rows are not at risk: merges and reads by address go on. Names cannot be looked up.",
            [q("max by (table) (lancewal_flusher_catalog_silent_seconds{@})", "{{table}}")],
            "catalog_gone",
            ("LancewalCatalogSilent",),
            unit="s",
            width=24,
        ),
    ),
)

_OF = " * on (job, instance) group_left (service) lancewal_build_info{@process}"
_SHOWN = "{{service}} {{instance}}"

PROCESSES = Section(
    "Processes",
    (
        Panel(
            "Processor time",
            "Processors that each process keeps busy.",
            "At the limit: the process is throttled, and everything is slow. Raise the limit, or add processes.",
            [q(f"rate(process_cpu_seconds_total{{@process}}[$__rate_interval]){_OF}", _SHOWN)],
            "load",
        ),
        Panel(
            "Memory",
            "Resident memory of each process.",
            "Grows without end: this is a bug, record the growth and report it. Near the limit: lower the budgets.",
            [q(f"process_resident_memory_bytes{{@process}}{_OF}", _SHOWN)],
            "ingest_gone",
            ("LancewalProcessCrashLoops",),
            unit="bytes",
        ),
        Panel(
            "Open files",
            "File descriptors of each process, connections included.",
            "Near the process's limit, new connections fail.",
            [q(f"process_open_fds{{@process}}{_OF}", _SHOWN)],
            "ingest_gone",
        ),
    ),
)

BOARD = Board(
    "lancewal-store",
    "lancewal: Kafka and store",
    "The systems that lancewal depends on: the object store, Kafka, a catalog in PostgreSQL, and the machine.",
    (STORE, KAFKA, CATALOG, PROCESSES),
)
