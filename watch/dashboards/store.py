"""What lancewal leans on: the object store, Kafka, and the machine."""

from __future__ import annotations

from watch.dashboards.panel import Board, Panel, Section, q, rate

STORE = Section(
    "Object store",
    (
        Panel(
            "Requests by outcome",
            "lancewal's own requests per second. absent and taken are answers, failed and unknown are faults.",
            "Faults: beside it are the operation and the object. taken: a swap that another process won.",
            [rate("lancewal_store_requests_total", "outcome")],
            "store_down",
            ("LancewalStoreErrors",),
            unit="reqps",
        ),
        Panel(
            "Share of faults",
            "Requests that failed or got no verdict, over all.",
            "Above some hundredths nothing goes on: rights, quota, or the way to the store. The logs have its code.",
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
            "The eight kinds of objects that are asked for most.",
            "Segments and region indexes are most of it; many probes or listings: see the log.",
            [q("topk(8, sum by (object) (rate(lancewal_store_requests_total{@}[$__rate_interval])))", "{{object}}")],
            "load",
            unit="reqps",
        ),
        Panel(
            "Time of requests",
            "99th percentile by operation.",
            "PUTs bound how soon rows are durable; GETs how soon reads and merges begin.",
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
            "Median and 99th percentile: rows become durable with these.",
            "Slow: the store's own figures, the network, the size of segments.",
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
            "Bytes read and written per second, Lance's own not included.",
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
            "Requests per minute that repeat one which failed or had no verdict.",
            "A few are normal on a real store; as many as requests: it does not answer.",
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
            "0: Kafka is away, or the way to it is; the log of the process has the client's words.",
            [q("min by (instance) (lancewal_kafka_connected_brokers{@})", "{{instance}}")],
            "broker_gone",
            ("LancewalBrokersUnreachable",),
        ),
        Panel(
            "Records and bytes received",
            "Bytes per second that came from the brokers, and records.",
            "Far more bytes than rows need: records are large, or are fetched again after takeovers.",
            [
                q("sum(rate(lancewal_kafka_received_bytes_total{@}[$__rate_interval]))", "bytes"),
                q("sum(rate(lancewal_kafka_received_records_total{@}[$__rate_interval]))", "records"),
            ],
            "load",
        ),
        Panel(
            "Fetched and not taken",
            "Bytes in the client's queue.",
            "Full all the time: ingest takes records more slowly than Kafka brings them.",
            [q("max by (instance) (lancewal_kafka_fetch_queue_bytes{@})", "{{instance}}")],
            "burst",
            ("LancewalIngestThrottled",),
            unit="bytes",
        ),
        Panel(
            "Round trip",
            "99th percentile of the slowest broker in the last window, and the longest throttling by a broker.",
            "Throttled: a quota of Kafka's. Slow: the brokers or the network.",
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
            "Some with every restart; a steady rise is a member that comes and goes.",
            [q("sum by (instance) (lancewal_kafka_rebalances_total{@})", "{{instance}}")],
            "takeover",
            ("LancewalOwnersFight",),
        ),
        Panel(
            "Since the last poll",
            "How long ago the consumer was last polled.",
            "Near max.poll.interval.ms the broker takes the partitions away.",
            [q("max by (instance) (lancewal_kafka_poll_age_seconds{@})", "{{instance}}")],
            "frozen",
            ("LancewalOwnersFight",),
            unit="s",
        ),
        Panel(
            "Failed requests to brokers",
            "Errors and time-outs per minute.",
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

_OF = " * on (job, instance) group_left (service) lancewal_build_info{@process}"
_SHOWN = "{{service}} {{instance}}"

PROCESSES = Section(
    "Processes",
    (
        Panel(
            "Processor time",
            "Processors that each process keeps busy.",
            "At the limit: it is throttled, and everything is slow. Raise the limit, or add processes.",
            [q(f"rate(process_cpu_seconds_total{{@process}}[$__rate_interval]){_OF}", _SHOWN)],
            "load",
        ),
        Panel(
            "Memory",
            "Resident memory.",
            "Grows without end: keep a log of it, that is a bug. Near the limit: lower the budgets.",
            [q(f"process_resident_memory_bytes{{@process}}{_OF}", _SHOWN)],
            "ingest_gone",
            ("LancewalProcessCrashLoops",),
            unit="bytes",
        ),
        Panel(
            "Open files",
            "File descriptors, connections among them.",
            "Near the limit of the process new connections fail.",
            [q(f"process_open_fds{{@process}}{_OF}", _SHOWN)],
            "ingest_gone",
        ),
    ),
)

BOARD = Board(
    "lancewal-store",
    "lancewal: Kafka and store",
    "What lancewal leans on: the object store, Kafka, and the machine.",
    (STORE, KAFKA, PROCESSES),
)
