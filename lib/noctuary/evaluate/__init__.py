"""How well recall finds what it should: labels, metrics, statistics, decisions, the report."""
