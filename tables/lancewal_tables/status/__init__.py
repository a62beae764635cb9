"""Status of a table, read from outside its services: positions, lag and problems of each partition.

``status`` makes the status: ``unmerged_counts`` counts unmerged rows, ``rejections`` counts records that became no rows.
``of_kafka`` asks the brokers, and ``partition_figures`` puts together the facts of a diagnosis.  ``readable`` says
whether a strong read would find what it needs.  ``subscribed`` shows subscriptions, ``kept_cuts`` cuts, and
``conflict_list`` keys in conflict.  ``memwal_export`` writes all states as Lance's MemWAL specification has them.

May import: cuts.
"""
