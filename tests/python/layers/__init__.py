"""Layers and types of networks built through the interface."""
