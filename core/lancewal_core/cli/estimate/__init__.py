"""``lancewal estimate``: the requests and the cost of a planned deployment.

``counted`` has the requests of each act, as a test counts them.  ``deployment`` describes the deployment that is
wanted.  ``pace`` says how often each act comes and how soon a row is seen.  ``expected`` sums both up.
``price_classes`` says in which class a cloud counts a request, and ``command`` shows the sum.

May import: cli, errors, process, settings, store, table, wal.
"""
