"""The commands ``table``, ``catalog``, ``conflict``, ``snapshot`` and ``status``, each in its own module.  ``load`` adds
``lancewal table load``.

``contract_text`` formats a contract as text.  ``alter_terms`` converts the options of ``lancewal table alter``.

May import: catalog, define, load, snapshots, status.
"""
