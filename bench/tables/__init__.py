"""docs/benchmarks/*.md, generated from the committed JSON files.

What belongs here: turning documents into Markdown. What does not: any measurement, any number that
does not follow from a file.
"""
