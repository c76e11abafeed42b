"""Plugin files that the benchmarks give to Rabbet."""
