"""How well recall finds what it should: labelled queries, metrics, intervals, reports.

What belongs here: arithmetic over rankings and labels. What does not: retrieval itself (a caller
passes a function), files of results and tables (bench/). Imports the standard library and numpy
only.
"""
