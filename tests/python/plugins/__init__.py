"""Plugins of all kinds: decorated functions, classes, kernels, carried code."""
