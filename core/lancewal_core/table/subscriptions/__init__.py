"""Subscriptions: named receipts that keep what a consumer of changes still needs.

``stored`` is what lies in the store.  ``needs`` says what a read at a receipt needs, whether it is still there, and how
long ago its state was the newest.  ``subscriptions`` creates, commits and drops; it has the protocol.  ``holding`` says
what garbage collection must keep.

May import: errors, names, process, region, store, table.
"""
