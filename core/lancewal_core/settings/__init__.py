"""Settings: one YAML file, secret files and the environment, combined into one frozen tree.

``sources`` reads them, and ``load`` puts them together.  ``sections`` has every setting with its default and why, and
``durations`` its times.  ``declared`` is what they say of a table's rows, and ``secrets`` masks them.  ``executor``
holds the part that a process without a ``main`` of ours takes.

May import: errors, names, process, record_keys, rows, store.
"""
