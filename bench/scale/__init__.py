"""The whole night on stores of up to a million memories: time, memory and bytes per stage."""
