"""Looking at a store from outside: its status and its health. Reads only; no heavy imports."""
