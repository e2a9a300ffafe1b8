"""How clustering and summarising grow with the number of turns: seconds, memory; made-up turns."""
