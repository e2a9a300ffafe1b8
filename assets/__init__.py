"""What exists: one module per asset group, checks beside their asset.

Bodies call noctuary.night and report metadata.

What does not belong here: computing (lib/noctuary), running (pipelines).
"""
