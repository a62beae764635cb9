"""The Lance table as the protocols need it, and what we keep beside it.

``protocol`` is the interface, ``lance`` implements it; ``contract`` says what the table is, ``checks`` whether it
still is; ``watermarks`` what a version has merged (``conflicts_ref``: and what it has set aside); ``control`` and
``load_record`` are what operators and loads have said, ``drain`` how far old partitions go,
``group`` who takes the records; ``snapshots`` are branches;
``far_rows`` names rows that an index cannot take.
``store_probe`` finds out whether a store keeps put-if-absent, ``store_proof`` records it and asks again at every start.

May import: errors, names, process, rows, settings, store.
"""
