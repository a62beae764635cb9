"""Subscriptions: named receipts that keep what a consumer of changes still needs.

``stored`` has the stored objects.  ``needs`` says which generations and versions a read at a receipt needs, whether
they still exist, and how old they are.  ``subscriptions`` creates, commits and drops subscriptions; it explains the
protocol.  ``holding`` says what garbage collection must keep.

May import: errors, names, process, region, store, table.
"""
