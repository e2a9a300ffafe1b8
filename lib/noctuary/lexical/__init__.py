"""BM25: postings on the build side, their search on the read side."""
