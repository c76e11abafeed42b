"""Checks that no modules of the Python package import each other in a circle.

    python tests/imports.py [ROOT]

Prints each circle and exits with 1 if there is one. Imports inside of functions
and those under TYPE_CHECKING count like others. So does what an import brings
along: rabbet.plugin._op imports rabbet.plugin, too, for modules outside of it.

An import of the package's own modules inside of a function is an error as well:
it hides a circle, or a cost that belongs into LATE.
"""

import ast
import pathlib
import sys

PACKAGE = "rabbet"
# (importing module, imported module) of imports that functions may make, and why.
LATE = {
    ("rabbet._compile", "rabbet.torch._module"): "torch is optional, and slow to import",
    ("rabbet._compile", "rabbet.torch"): "the same",
    ("rabbet.torch", "rabbet.torch._backend"): "it imports torch._dynamo, which takes seconds",
}


def module_name(path, folder):
    """The dotted name of a file."""
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules_in(folder):
    """Path by name; the extension modules have stubs."""
    return {module_name(path, folder): path
            for pattern in ("*.py", "*.pyi")
            for path in sorted((folder / PACKAGE).rglob(pattern))}


def ancestors(name):
    """The packages that a module lies in."""
    parts = name.split(".")
    return {".".join(parts[:size]) for size in range(1, len(parts))}


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def statements(node, late=False):
    """Import statements, and whether a function makes them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, late
        yield from statements(child, late or isinstance(child, FUNCTIONS))


def targets(node, package, known):
    """What a statement in a module of a package imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    parts = package.split(".")
    base = parts[:len(parts) + 1 - node.level] if node.level else []
    source = ".".join(base + ([node.module] if node.module else []))
    names = [f"{source}.{alias.name}" for alias in node.names]
    return [name if name in known else source for name in names]


def imports_of(name, path, known):
    """(line, module, whether a function imports it) of each import of our own; those
    of the packages that a module lies in have begun before it."""
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    for node, late in statements(ast.parse(path.read_text(encoding="utf-8"))):
        for target in targets(node, package, known):
            if target.partition(".")[0] == PACKAGE:
                others = ancestors(target) - ancestors(name) - {name}
                for module in (target, *sorted(others)):
                    yield node.lineno, module, late


def circles(edges):
    """Groups of modules each of which needs all others (Tarjan's components)."""
    number, low, stack, found = {}, {}, [], []

    def visit(name):
        number[name] = low[name] = len(number)
        stack.append(name)
        for target in sorted(edges.get(name, ())):
            if target not in number:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], number[target])
        if low[name] == number[name]:
            group = stack[stack.index(name):]
            del stack[stack.index(name):]
            if len(group) > 1 or name in edges.get(name, ()):
                found.append(sorted(group))

    for name in sorted(edges):
        if name not in number:
            visit(name)
    return found


def check(folder, allowed):
    """Yields sentences about what is wrong. allowed: pairs as in LATE."""
    known = modules_in(folder)
    edges, late_pairs = {}, set()
    for name, path in known.items():
        where = path.relative_to(folder.parent)
        for line, target, late in imports_of(name, path, known):
            edges.setdefault(name, set()).add(target)
            if late:
                late_pairs.add((name, target))
            if late and (name, target) not in allowed:
                yield f"{where}:{line}: {target} is imported inside of a function"
    for pair in allowed.keys() - late_pairs:
        yield f"LATE: {' imports '.join(pair)}: there is no such import"
    for group in circles(edges):
        yield f"circle: {', '.join(group)}"


def main(root):
    folder = pathlib.Path(root).resolve() / "python"
    errors = list(check(folder, LATE))
    print(*errors, sep="\n", end="\n" if errors else "")
    count = len(modules_in(folder))
    print(f"imports: {count} modules, {len(errors)} circles and late imports")
    return 1 if errors or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1
                  else pathlib.Path(__file__).parent.parent))
