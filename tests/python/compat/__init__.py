"""The package under the name tensorrt."""
