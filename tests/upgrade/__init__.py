"""``python3 dev.py check-upgrade``: two releases work on one table, side by side, against a real broker.

``releases`` installs a commit in an environment of its own; ``read`` is run by each release's Python; the rest is the steps.
"""
