"""Axes of tensors as products of atoms, which operators join.

An axis is a list of atoms, outer first; an axis of extent 1 is empty. An atom is a
range of indices that operators keep in order: the 32 heads in a product's 4096 columns,
the 128 elements of each. What is one range in the network is one atom, wherever it
occurs, so that splitting it over ranks splits all weights and tensors that have it in
the same way. An atom that turns out to be a product (a reshape takes it apart) or a row
of segments (a slice cuts it, tensors are concatenated) is refined in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

# (factor, numbers of symbolic expressions): equal sizes are equal tuples.
Size = tuple[int, tuple[int, ...]]
Axis = list["Atom"]
ONE: Size = (1, ())


class Atom:
    """A range of indices. At most one of `same`, `parts` and `segments` is set."""

    __slots__ = ("parts", "pinned", "same", "segments", "size")

    def __init__(
        self, size: Size, pinned: str | None = None, segments: list[Axis] | None = None
    ) -> None:
        assert size != ONE, "an axis of extent 1 is empty"
        self.size = size
        self.same: Atom | None = None  # it was joined with this one
        self.parts: Axis | None = None  # it is their product
        self.segments = segments  # it is these axes behind each other
        self.pinned = pinned  # why it cannot be split


def axis_of(size: Size) -> Axis:
    """A new axis of its own."""
    return [] if size == ONE else [Atom(size)]


def find(atom: Atom) -> Atom:
    """The atom that stands for those it was joined with."""
    while atom.same is not None:
        if atom.same.same is not None:
            atom.same = atom.same.same
        atom = atom.same
    return atom


def leaves(axis: Axis) -> Axis:
    """The axis in atoms that are not taken apart, outer first."""
    found: Axis = []
    for each in axis:
        atom = find(each)
        if atom.parts is None:
            found.append(atom)
        else:
            found += leaves(atom.parts)
    return found


def atoms_in(axis: Axis) -> Iterator[Atom]:
    """All atoms of an axis, also those in segments."""
    for atom in leaves(axis):
        yield atom
        for segment in atom.segments or ():
            yield from atoms_in(segment)


def pin(axis: Axis, reason: str) -> None:
    """No atom of the axis can be split."""
    for atom in atoms_in(axis):
        atom.pinned = atom.pinned or reason


# ---- Sizes ----


def times(a: Size, b: Size) -> Size:
    """The product."""
    return a[0] * b[0], tuple(sorted(a[1] + b[1]))


def divided(a: Size, b: Size) -> Size | None:
    """a / b, if that is a size."""
    if b[0] == 0 or a[0] % b[0]:
        return None
    left = list(a[1])
    for symbol in b[1]:
        if symbol not in left:
            return None
        left.remove(symbol)
    return a[0] // b[0], tuple(left)


def size_of(axis: Axis) -> Size:
    """The extent of an axis."""
    size = ONE
    for atom in leaves(axis):
        size = times(size, atom.size)
    return size


# ---- Refining and joining ----


def _divide_inside(axis: Axis, inner: int) -> tuple[Axis, Axis] | None:
    """The axis as (outer, inner), where inner has that extent."""
    left = leaves(axis)
    taken: Axis = []
    while inner > 1:
        if not left:
            return None
        atom = left.pop()
        if atom.size[1]:
            return None
        if inner % atom.size[0] == 0:
            inner //= atom.size[0]
            taken.insert(0, atom)
        elif atom.size[0] % inner == 0 and refine(
            atom, [(atom.size[0] // inner, ()), (inner, ())]
        ):
            left += leaves([atom])
        else:
            return None
    return left, taken


def refine(atom: Atom, sizes: list[Size]) -> bool:
    """Makes the atom a product of two; False if its segments do not allow it."""
    if atom.segments is None:
        atom.parts = [Atom(size, atom.pinned) for size in sizes if size != ONE]
        return True
    if sizes[1][1]:
        return False
    outer: list[Axis] = []
    inner: Axis | None = None
    for segment in atom.segments:
        divided_segment = _divide_inside(segment, sizes[1][0])
        if divided_segment is None:
            return False
        outer.append(divided_segment[0])
        if inner is None:
            inner = divided_segment[1]
        elif not join(inner, divided_segment[1], "segments"):
            return False
    assert inner is not None
    atom.parts = [Atom(sizes[0], atom.pinned, outer), *inner]
    atom.segments = None
    return True


def _join_segments(a: Atom, b: Atom) -> bool:
    """Joins two rows of segments, if they can be cut at the same places."""
    assert a.segments is not None
    assert b.segments is not None
    for axis, other in ((a, b), (b, a)):
        start = 0
        for segment in list(other.segments or ()):
            size = size_of(segment)
            if size[1] or cut([axis], start, size[0]) is None:
                return False
            start += size[0]
    mine, theirs = flat_segments(a), flat_segments(b)
    if [size_of(axis) for axis in mine] != [size_of(axis) for axis in theirs]:
        return False
    fits = [join(x, y, "segments") for x, y in zip(mine, theirs, strict=True)]
    return all(fits)


def flat_segments(atom: Atom) -> list[Axis]:
    """The segments, without those that are a row of segments themselves."""
    found: list[Axis] = []
    for segment in atom.segments or ():
        inside = leaves(segment)
        if len(inside) == 1 and inside[0].segments is not None:
            found += flat_segments(inside[0])
        else:
            found.append(segment)
    return found


def _join_atoms(a: Atom, b: Atom) -> None:
    a, b = find(a), find(b)
    if a is b:
        return
    reason = a.pinned or b.pinned
    if a.segments is not None and b.segments is not None:
        if not _join_segments(a, b):
            pin([a], "its segments do not fit together")
            pin([b], "its segments do not fit together")
            return
        a, b = find(a), find(b)
        if a is b or a.parts or b.parts:
            return
    elif b.segments is not None:
        a, b = b, a
    if any(atom is b for atom in atoms_in([a])):
        pin([a], "it would be a part of itself")
        return
    b.same, b.segments = a, None
    if reason:
        pin([a], reason)


def _match(a: Axis, b: Axis, inner: bool) -> tuple[Axis, Axis]:
    """Joins atoms of two axes from one end; gives what is left of both."""
    at = -1 if inner else 0
    a, b = leaves(a), leaves(b)

    def splice(axis: Axis) -> None:
        atom = axis.pop(at)
        parts = leaves([atom])
        if inner:
            axis += parts
        else:
            axis[:0] = parts

    while a and b:
        first, second = find(a[at]), find(b[at])
        if first.parts is not None or first is not a[at]:
            splice(a)
            continue
        if second.parts is not None or second is not b[at]:
            splice(b)
            continue
        if first.size == second.size:
            _join_atoms(first, second)
            a.pop(at)
            b.pop(at)
            continue
        larger, size = (second, first.size), None
        size = divided(second.size, first.size)
        if size is None:
            larger = (first, second.size)
            size = divided(first.size, second.size)
        if size is None or 0 in (first.size[0], second.size[0]):
            break
        parts = [size, larger[1]] if inner else [larger[1], size]
        if not refine(larger[0], parts):
            break
        splice(a if larger[0] is first else b)
    return a, b


def match(a: Axis, b: Axis) -> tuple[Axis, Axis]:
    """Joins the atoms of two axes of one extent, from both ends. Gives the atoms in the
    middle that do not fit."""
    a, b = _match(a, b, False)
    return _match(a, b, True) if a and b else (a, b)


def join(a: Axis, b: Axis, what: str) -> bool:
    """Joins two axes that an operator walks together; what does not fit is pinned."""
    left, right = match(a, b)
    for axis in (left, right):
        pin(axis, f"{what} joins it with an axis that is divided otherwise")
    return not left and not right


# ---- Cutting ----


def cut(axis: Axis, start: int, size: int) -> Axis | None:
    """The elements from start on; None if no atoms are these."""
    inside = leaves(axis)
    inner = 1
    tail: Axis = []
    while inside and not inside[-1].size[1]:
        wider = inner * inside[-1].size[0]
        if wider == 0 or start % wider or size % wider:
            break
        tail.insert(0, inside.pop())
        inner = wider
    if not inside:
        return tail if size == inner else None
    if len(inside) > 1 or inside[0].size[1] or inner == 0:
        return None
    head = _cut_atom(inside[0], start // inner, size // inner)
    return None if head is None else head + tail


def _cut_atom(atom: Atom, start: int, size: int) -> Axis | None:
    whole = atom.size[0]
    if size <= 0 or start < 0 or start + size > whole:
        return None
    if (start, size) == (0, whole):
        return [atom]
    if atom.segments is None:
        sizes = (start, size, whole - start - size)
        pinned = atom.pinned
        atom.segments = [[Atom((n, ()), pinned)] if n > 1 else [] for n in sizes if n]
    pieces: list[Axis] = []
    made: list[Axis] = []
    at = 0
    for segment in atom.segments:
        extent = size_of(segment)[0]
        low, high = max(start, at), min(start + size, at + extent)
        if low >= high:
            made.append(segment)
        elif high - low == extent:
            made.append(segment)
            pieces.append(segment)
        else:
            piece = cut(segment, low - at, high - low)
            if piece is None:
                return None
            made.append(segment)
            pieces.append(piece)
        at += extent
    atom.segments = made
    if len(pieces) == 1:
        return pieces[0]
    return [Atom((size, ()), atom.pinned, pieces)]


# ---- Splitting ----


def has(axis: Axis, atom: Atom) -> bool:
    """Whether the atom is in the axis."""
    return any(each is atom for each in atoms_in(axis))


def times_in(axis: Axis, atom: Atom) -> int:
    """How often an index of the axis depends on the atom."""
    count = 0
    for leaf in leaves(axis):
        if leaf is atom:
            count += 1
        elif leaf.segments is not None:
            count += max(times_in(segment, atom) for segment in leaf.segments)
    return count


def is_pure(axis: Axis, atom: Atom) -> bool:
    """Whether each element of the axis is on one rank alone."""
    return any(
        leaf is atom
        or (leaf.segments is not None and all(is_pure(s, atom) for s in leaf.segments))
        for leaf in leaves(axis)
    )


def local_size(axis: Axis, atom: Atom, ranks: int) -> Size:
    """The extent of a rank's part."""
    size = ONE
    for leaf in leaves(axis):
        if leaf is atom:
            size = times(size, (leaf.size[0] // ranks, leaf.size[1]))
        elif leaf.segments is not None:
            rows = sum(local_size(s, atom, ranks)[0] for s in leaf.segments)
            size = times(size, (rows, ()))
        else:
            size = times(size, leaf.size)
    return size


def local_indices(axis: Axis, atom: Atom, ranks: int, rank: int) -> np.ndarray:
    """Where the elements of a rank's part are in the whole, in their order."""
    import numpy as np

    found = np.zeros(1, np.int64)
    for leaf in leaves(axis):
        count = leaf.size[0]
        assert not leaf.size[1], "only axes of known extent are indexed"
        if leaf is atom:
            part = count // ranks
            own = np.arange(rank * part, (rank + 1) * part)
        elif leaf.segments is not None:
            rows, at = [], 0
            for segment in leaf.segments:
                rows.append(at + local_indices(segment, atom, ranks, rank))
                at += size_of(segment)[0]
            own = np.concatenate(rows)
        else:
            own = np.arange(count)
        found = (found[:, None] * count + own[None, :]).ravel()
    return found
