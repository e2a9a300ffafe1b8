"""The phases of a recall, one module each, and the order in which they run."""
