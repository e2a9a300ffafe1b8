"""Which memories a newer one replaces, and which intervals of the graph that ends.

`grades` and `reading` belong to the read side (standard library and numpy); everything else is
build side: `find` collects the links of `explicit`, `values` and `near`, `resolve` gives each older
memory one successor, `intervals` closes edges. Nothing is imported here, and nothing is deleted.
"""
