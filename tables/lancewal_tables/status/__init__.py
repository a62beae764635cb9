"""How far a table has come, asked from outside.

``status`` takes it: ``unmerged_counts`` counts what is not merged, ``rejections`` what became no rows, ``of_kafka`` asks the
brokers, ``partition_figures`` puts together what a diagnosis is made of, ``readable`` says whether a strong read would find
what it needs.  ``conflict_list`` shows keys in conflict; ``memwal_export`` writes all indexes as Lance's MemWAL specification
has it.

May import: nothing of this package.
"""
