"""What was recalled and asked, and the scores that follow from it."""
