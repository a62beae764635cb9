"""Unmerged rows: the delta of a plan, folded to one state of each key.

``load`` folds the delta in ``portions``.  Generations are read from the files that ingest has ``flushed``, the others
from ``entries`` of the log.  ``loaded`` caches folded deltas for the next plan, which often extends one of them.
``hidden`` caches the addresses of the merged rows that the delta supersedes.  ``completed`` takes the columns that
patches do not set from the table.  ``left_out`` says which records a read does not see.  ``one_order`` sorts items by
several orders.

May import: event_table, plan.
"""
