"""`noctuary evaluate`: labelled sets, judgements, runs and comparisons from the shell.

What belongs here: commands and how their results are printed. What they compute is
noctuary.evaluate.
"""
