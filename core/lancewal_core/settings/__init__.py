"""Settings: one YAML file, secret files and the environment, into one frozen tree.

``sources`` reads them, ``load`` puts them together, ``sections`` has every setting with its default and why, and
``durations`` its times; ``declared`` is what they say of a table's rows, ``secrets`` masks them, ``executor`` is what a
process without a ``main`` of ours takes.

May import: errors, names, process, rows, store.
"""
