"""What is not merged: the delta of a plan, folded to one state of each key.

``load`` folds it, by the rule for regions that may share keys, in ``portions``: generations that are read from what ingest has
``flushed``, and ``entries`` of the log.  What was ``loaded`` is kept for the next plan, which often goes on from it.
``completed`` are rows of which the table has the other columns; ``left_out`` says what a read does not see; ``one_order`` is
a detail.

May import: event_table, plan, python_collector.
"""
