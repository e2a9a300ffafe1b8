"""What a mean over queries can and cannot show: intervals, tests, corrections, power.

What belongs here: arithmetic over arrays of per-query values. What does not: which metric, which
arm, what a verdict follows from.
"""
