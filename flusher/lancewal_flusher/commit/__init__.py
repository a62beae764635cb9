"""Send commits, and find out at which version they landed.

``facts`` and ``row_origins`` are what a merge records about itself in its commit.  ``send`` sends a commit, looks for
it, and proves it.  ``other_commits`` sends lancewal's commits other than merges.  ``widened`` checks the columns of
a version to which rows will be written, and takes a widening that has landed there into the contract.

May import: context.
"""
