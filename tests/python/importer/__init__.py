"""ONNX files: operators, their versions, damaged files."""
