"""Shared foundations: types, errors, files, settings and the layout of a store."""
