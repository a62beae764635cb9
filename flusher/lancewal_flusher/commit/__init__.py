"""Send commits, and conclude from where they landed.

``facts`` and ``row_origins`` hold what a merge says about itself in its commit.  ``send`` sends a commit, looks for
it, and proves it.  ``other_commits`` sends our commits other than merges.  ``widened`` checks the columns of
a version to which rows will be written, and takes a widening that has landed there into the contract.

May import: context.
"""
