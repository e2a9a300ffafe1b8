"""Sources that can be written: one interface, a claude-memory SQLite file or a PostgreSQL database.

Nothing is imported here.
"""
