"""Plugins, programs and references that several rooms of tests use."""
