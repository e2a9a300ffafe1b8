"""What exists: one module per asset group, checks beside their asset.

Bodies call mnemon.night and report metadata.

What does not belong here: computing (lib/mnemon), running (pipelines).
"""
