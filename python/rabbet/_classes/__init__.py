"""Plugins as classes, and the registry of their creators."""
