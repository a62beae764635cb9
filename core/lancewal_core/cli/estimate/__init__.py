"""``lancewal estimate``: what a deployment that there is not yet will ask of its store, and what that costs.

``counted`` is what each act asks, as a test counts it; ``deployment`` what is wished for; ``pace`` how often each act comes
and how soon a row is seen; ``expected`` the sum of both; ``command`` shows it.

May import: cli, errors, process, settings, store, table, wal.
"""
