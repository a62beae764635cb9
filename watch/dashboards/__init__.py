"""Grafana's dashboards, once: ``python -m watch`` writes them into the chart, from which docker-compose.yml takes them too.

``panel`` is what a panel consists of, ``board`` makes a dashboard of panels with Grafana's typed builders.  The boards are
``overview``, ``ingest``, ``flusher`` and ``store``; ``table`` lists them.
"""
