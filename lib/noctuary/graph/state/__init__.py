"""What every memory contributes to the graph, kept between nights, and the sum of it.

`schema` opens the file, `rows` turns findings into rows, `sync` brings the file up to date,
`rematch` knows which texts a changed name concerns, `place`, `holdings` and `steps` add everything
up in SQL. Nothing is imported here.
"""
