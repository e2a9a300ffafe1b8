"""Time, memory and bytes: of nights, of recall, of hooks and of servers."""
