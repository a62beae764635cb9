"""Status of a table, asked from outside: how far it has come.

``status`` takes it: ``unmerged_counts`` counts what is not merged, ``rejections`` what became no rows.  ``of_kafka``
asks the brokers, ``partition_figures`` puts together what a diagnosis is made of.  ``readable`` says whether a strong
read would find what it needs.  ``conflict_list`` shows keys in conflict; ``memwal_export`` writes all states as
Lance's MemWAL specification has them.

May import: nothing of this package.
"""
