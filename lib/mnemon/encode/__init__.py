"""Encoders: text to unit vectors, on the build side with torch and on the read side with numpy alone."""
