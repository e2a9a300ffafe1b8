"""The night: each stage wired to its inputs on disk."""
