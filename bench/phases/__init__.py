"""What the phases of use, age and variety do to real answers, each against recall without it.

What belongs here: the conditions, the made-up past that phases of use need, asking and comparing.
What does not: arms of whole systems (`bench.suite`), pages (`bench.tables`).
"""
