"""Objects of the package: builders, engines, contexts, files, threads."""
