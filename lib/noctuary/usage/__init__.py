"""What was recalled.

The access log that recall appends to, and the statistics that the night folds from it.
"""
