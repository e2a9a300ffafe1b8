"""`make bench-quality`: every arm on every labelled set, resumable, with its statistics.

What belongs here: the order of the work, what is kept of it, and the numbers made of what is kept.
What does not: how an arm is asked (bench/arms), metrics and intervals (noctuary.evaluate), pages
(bench/tables).
"""
