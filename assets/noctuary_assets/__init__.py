"""What exists: one file per asset group, with its stages, assets and checks."""
