"""Proposals: tidying the memory store itself, and promoting turns to memories."""
