"""What several rooms of tests use: plugins, programs, references."""
