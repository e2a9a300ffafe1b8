"""The night's report for people: plots as PNG and one static HTML page."""
