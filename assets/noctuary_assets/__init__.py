"""What exists: one file per asset group, from left to right as the lineage reads.

ingest, index, graph, compact, pack, evaluate, publish, report, proposals. A file holds a group's
stages, assets and checks; computing is lib/noctuary, running is pipelines.
"""
