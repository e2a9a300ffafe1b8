"""Snapshots.

Their layout and manifest (read side), and how one is built, judged and published (build side).
"""
