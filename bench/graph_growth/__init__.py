"""How the graph's build grows with the number of memories: seconds and memory, on made-up texts."""
