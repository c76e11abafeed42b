"""Tests of the benchmarks' harness."""
