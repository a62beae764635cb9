"""The commands of tables, and ``lancewal status``, a module each.

``contract_text`` shows contracts, ``alter_terms`` reads the changes that ``lancewal table alter`` is asked for.

May import: define, load, snapshots, status.
"""
