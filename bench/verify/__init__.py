"""`make bench-verify`: index, verify, search, and an answer per number: OK, OKish or FAIL.

What belongs here: regression files, their verdicts and the dated log of every change of a number.
What does not: how a set is built or asked (bench/suite, bench/arms).
"""
