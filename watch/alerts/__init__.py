"""Every alert of lancewal, from which the chart's PrometheusRule and the plain rules file are generated.

``alert`` defines an alert, and ``table`` lists all of them.  ``presence``: does each process run?  ``freshness``: do rows
become durable and visible in time?  ``loss``: may something be lost or wrong?  ``merging``: does the flusher keep up?
``store``: do the object store and the catalog answer?  ``rules`` writes the alerts for Prometheus and for the chart, and
``pages`` the list of runbooks.
"""
