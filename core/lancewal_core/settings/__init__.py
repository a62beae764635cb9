"""Settings: one YAML file, secret files and the environment, combined into one frozen tree.

``sources`` reads them, and ``load`` puts them together.  ``sections`` has every setting with its default and why,
``durations`` its times, and ``catalog_url`` addresses of servers of catalogs.  ``declared`` is what they say of a table's
rows, and ``secrets`` masks them.  ``executor`` holds the part that a process without a ``main`` of ours takes.

May import: errors, names, process, record_keys, rows, store.
"""
