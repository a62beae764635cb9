"""Grafana's dashboards.  ``python -m watch`` writes them into the chart; docker-compose.yml takes them from there.

``panel`` defines a panel, and ``board`` makes a dashboard of panels with Grafana's typed builders.  The boards are
``overview``, ``ingest``, ``flusher`` and ``store``; ``table`` lists them.
"""
