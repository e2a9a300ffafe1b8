"""What exists: one file per asset group, checks beside their asset.

Bodies call noctuary.night and report metadata; computing is lib/noctuary, running is pipelines.
"""
