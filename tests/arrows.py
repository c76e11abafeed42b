"""Checks that #include lines follow the arrows between the layers.

    python tests/arrows.py [ROOT]

Prints each include that goes against them and exits with 1 if there is one.
A layer is a folder of src/; a folder below it counts as a layer of its own
where ALLOWED names it. Everybody may include the public headers rabbet/*.h,
which include nothing but each other and the C library.
"""

import pathlib
import re
import sys

BASE = {"base"}
CORE = BASE | {"core"}
# Of one tier in the picture, yet in this order: groups of layers (ops) hold
# checked plugins, plans and kernels speak of groups.
PLUGIN = CORE | {"plugin"}
OPS = PLUGIN | {"ops"}
RUNTIME = OPS | {"plan", "device"}
NETWORK = OPS | {"network"}

# Layer: the layers that it may include besides itself.
ALLOWED = {
    "base": set(),
    "core": BASE,
    "plugin": CORE,
    "ops": PLUGIN,
    "plan": OPS,
    "device": OPS,
    "device/common": OPS | {"device"},
    "device/cpu": OPS | {"device", "device/common"},
    "device/cuda": OPS | {"device", "device/common"},
    # runtime and builder meet in the plan alone.
    "runtime": RUNTIME,
    "network": NETWORK,
    "onnx": NETWORK,
    "builder": NETWORK | {"plan", "device"},
    "cli": NETWORK | RUNTIME | {"network", "onnx", "builder", "runtime"},
    "python": NETWORK | RUNTIME | {"onnx", "builder", "runtime", "cli"},
    "pyhost": RUNTIME,
    "trial": RUNTIME | {"runtime"},
    # As a stranger's program: the public headers alone.
    "triton": set(),
    # Has GPUs of its own, for the memory of ONNX Runtime's tensors.
    "ortep": OPS | {"device"},
    "include": set(),
}

# Headers of other people's libraries: the layers that may use them.
FOREIGN = {
    r"(oneapi/)?dnnl.*": {"device/cpu"},
    r"omp\.h": {"device/cpu"},
    r"(cuda|nvrtc|cublas|cudnn|nccl).*": {"device/cuda"},
    r"Python\.h": {"python", "pyhost"},
    r"protobuf-c/.*": {"plan", "onnx", "builder"},
    r"xxhash\.h": {"base"},
    r"zstd.*": {"base", "plan", "cli"},
    r"zlib\.h": {"cli"},
    r"cJSON\.h": {"triton"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
SUFFIXES = {".c", ".h", ".inc", ".def", ".cu", ".cuh"}
# Headers in tests/ that tests beside the code include.
TEST_HEADERS = re.compile(r"check\.h|faults/.*|conformance/.*|cuda_stand_in/.*|triton_stand_in/.*")


def layer_of(path):
    """The layer of a path relative to src/, or None."""
    parts = pathlib.PurePosixPath(path).parts
    for size in (2, 1):
        if len(parts) > size and "/".join(parts[:size]) in ALLOWED:
            return "/".join(parts[:size])
    return None


def own_layer(relative):
    """The layer of a file, by its path in the repository."""
    top = relative.parts[0]
    if top == "src":
        return layer_of(relative.relative_to("src").as_posix())
    return top


def check_quoted(name, layer, path):
    if name.startswith("rabbet/"):
        return None
    if layer == "include":
        return "public headers include public headers only"
    if path.name.endswith("_test.c") and TEST_HEADERS.fullmatch(name):
        return None
    if "/" not in name:
        if name.endswith(".pb-c.h") or not (path.parent / name).exists():
            return None  # generated in the build folder
        return "give the path from src/"
    target = layer_of(name)
    if target is None:
        return "no layer that this script knows"
    if target != layer and target not in ALLOWED[layer]:
        return f"{layer} may not include {target}"
    return None


def check_foreign(name, layer):
    for pattern, layers in FOREIGN.items():
        if re.fullmatch(pattern, name) and layer not in layers:
            return f"{layer} may not use this library"
    return None


def check_file(path, root):
    """Yields (line number, header, reason)."""
    layer = own_layer(path.relative_to(root))
    if layer not in ALLOWED:
        yield 0, "-", f"folder {layer} is no layer that this script knows"
        return
    text = path.read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text):
        quote, name = match.groups()
        ours = quote == '"' or name.startswith("rabbet/")
        reason = (check_quoted(name, layer, path) if ours
                  else check_foreign(name, layer))
        if reason:
            line = text.count("\n", 0, match.start(2)) + 1
            yield line, name, reason


def main(root):
    root = pathlib.Path(root).resolve()
    files = [path for folder in ("include", "src", "python")
             for path in sorted((root / folder).rglob("*"))
             if path.suffix in SUFFIXES]
    errors = 0
    for path in files:
        for line, name, reason in check_file(path, root):
            print(f"{path.relative_to(root)}:{line}: {name}: {reason}")
            errors += 1
    print(f"arrows: {len(files)} files, {errors} includes against the arrows")
    return 1 if errors or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1
                  else pathlib.Path(__file__).parent.parent))
