"""Documents that people write for their agents (AGENTS.md, CLAUDE.md): nodes in three tiers.

`node` is what a document consists of, `parse` makes the nodes of one text, `documents` reads files
and refuses hard nodes that do not fit their reserve. Below them: `front_matter` (YAML), `blocks`
and `flatten` (Markdown), `deontic` (what a paragraph demands). Read side: the Markdown and YAML
libraries are loaded when a document is parsed. What goes into a prompt is decided elsewhere
(`noctuary.context`). Nothing is imported here.

Source: libravdb mathematics 7.2; the rules of each tier from research/peers.md 1.3.
"""
