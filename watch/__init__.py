"""Alerts and dashboards of lancewal, as code.

``alerts`` has the alert rules and ``dashboards`` the dashboards.  ``promql`` finds the metrics and labels in an
expression.  ``files`` lists the generated files, which ``python -m watch`` writes.  They are committed; the chart and
docker-compose.yml use them.
"""
