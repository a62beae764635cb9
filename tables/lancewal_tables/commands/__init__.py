"""The commands ``table``, ``catalog``, ``conflict``, ``snapshot``, ``cut`` and ``status``, each in its own module.
``load`` adds ``lancewal table load``.

``contract_text`` formats a contract as text.  ``alter_terms`` converts the options of ``lancewal table alter``.

May import: catalog, cuts, define, load, snapshots, status.
"""
