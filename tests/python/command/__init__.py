"""The command `rabbet`."""
