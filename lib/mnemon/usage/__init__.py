"""What was recalled: the access log that recall appends to, and the statistics that the night folds from it."""
