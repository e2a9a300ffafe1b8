"""The contract: what stores answered before the house was rebuilt, and must answer after it.

What belongs here: asking through public names (the package's own functions, the command line and
the files that a store promises), writing the answers down, comparing. What does not: anything that
knows which module computes what.
"""
