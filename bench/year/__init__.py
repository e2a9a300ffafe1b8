"""A year of a small store in compressed time: what grows although the store does not."""
