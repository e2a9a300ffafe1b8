"""The night's report for people: plots as PNG and one static HTML page.

What belongs here: drawing and wording results that exist already. What does not: computing a
result, reading a store, deciding anything.
"""
