"""Context assembly: what goes into one prompt, under one token budget, and why each part is there.

`assembling` is the order of precedence, `api` the function that agents call. Below them: `profile`
(constants), `values` (turns, parts, the context), `counting` (tokens), `rendering` (text and tags),
`tail` (which turns stay), `candidates`, `scoring` and `packing` (what the query finds), `searching`
(what is asked of a store), `store_search` with `text_vectors` (a real one) and `session_file`
(turns from a file). Read side. Documents are parsed by `noctuary.authored`, memories ranked by
`noctuary.recall`. Nothing is imported here.

Source: libravdb mathematics sections 3 and 7; research/peers.md 1.3 to 1.6.
"""
