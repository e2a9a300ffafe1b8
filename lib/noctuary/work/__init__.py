"""The night's workbench: what is memoised, which stages are up to date, what each one cost.

Knows no stage by name.
"""
