"""Every alert, once: the chart's PrometheusRule and the plain rules file are made of it.

``alert`` is what an alert consists of, ``table`` lists them all: ``presence`` (does anything run), ``freshness`` (do rows
become durable and visible in time), ``loss`` (may something be lost or wrong), ``merging`` (does the flusher keep up),
``store`` (does it answer).  ``rules`` writes them for Prometheus and for the chart, ``pages`` the list of runbooks.
"""
