"""Measure recall: labels, metrics, statistics, decisions, the report."""
