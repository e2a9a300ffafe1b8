"""Encoders: text to unit vectors; torch on the build side, numpy alone on the read side."""
