"""The lexical leg: the tokens of a memory, pre-scored BM25 postings, and their search.

Build side: fields, postings. Read side: search.
"""
