"""What is lost, and what is saved, when summaries are searched in the place of old turns."""
