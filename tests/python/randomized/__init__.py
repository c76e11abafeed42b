"""Networks drawn at random, against NumPy and ONNX Runtime."""
