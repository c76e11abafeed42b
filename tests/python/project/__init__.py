"""Documentation, examples, packages, the zoo."""
