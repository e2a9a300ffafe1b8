"""The graph leg's constants, chosen by cross-validation over the queries of several sets."""
