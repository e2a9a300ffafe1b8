"""Benchmarks: measured runs over labelled sets, their JSON files and the tables made from them.

Outside the test run and outside the wheel. May import noctuary; nothing imports bench.
"""
