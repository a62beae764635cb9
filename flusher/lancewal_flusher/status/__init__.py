"""How far a table has come, asked from outside.

``status`` takes it, ``unmerged_counts`` counts what is not merged, ``stopped_partitions`` says which go no further,
``readable`` whether a strong read would find what it needs; ``conflict_list`` shows keys in conflict;
``memwal_export`` writes all indexes as Lance's MemWAL specification has it.

May import: context.
"""
