"""The concept graph: what memories are about, what they name, and the edges that follow from it.

`fold`, `extract`, `dictionary` and `build` make the graph; `arrays` and `walk` read it (numpy).
Nothing is imported here, so that the read side never pays for the build side.
"""
