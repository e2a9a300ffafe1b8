"""Metrics of one ranking against its labels: one file per metric.

What belongs here: pure functions of a ranking, its labels and a cutoff. What does not: averaging,
intervals, files.
"""
