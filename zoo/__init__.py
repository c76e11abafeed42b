"""Real architectures, exported to ONNX with small random weights, and checked.

`python -m zoo` exports the architectures of `zoo.catalogue`, builds and runs each
file with Rabbet, compares with ONNX Runtime, and writes a table. `--help` lists what
can be chosen. Nothing is downloaded, and nothing that it makes is committed but the table.
"""
