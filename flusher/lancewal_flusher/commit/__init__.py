"""Sending a commit, and what may be concluded from where it landed.

``facts`` and ``row_origins`` are what a merge says about itself in its commit; ``send`` sends it, looks for it, and
proves it; ``other_commits`` are those that are ours besides merges.

May import: context.
"""
