"""What the concept graph is worth: recall with it, without it and without its parts."""
