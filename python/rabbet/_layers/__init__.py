"""Layers: their classes, and the methods of networks that add them."""
