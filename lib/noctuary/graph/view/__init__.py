"""Looking at the concept graph of one snapshot: one concept, a path between two, the overview.

Read side: standard library and numpy only, imports no builder but the folding of names. What
belongs here: finding, describing, printing. What does not: ranking memories, changing the graph.
Memories that the scope does not allow do not exist here: they are neither shown nor counted, and
what only they say (a name, a relation, the end of one) is not said.
"""
