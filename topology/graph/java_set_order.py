"""The iteration orders of Java's sets, for the texts in which Kafka Streams prints them.

Source: java.util.HashMap and java.util.TreeMap, whose behaviour shows through ``Topology.describe()``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


def hash_order(names: Iterable[str]) -> list[str]:
    """The names in the order in which a HashSet<String> of Java gives them, filled one by one."""
    distinct = list(dict.fromkeys(names))
    capacity = 16
    while len(distinct) > capacity * 3 // 4:
        capacity *= 2
    return sorted(distinct, key=lambda name: _spread_hash(name) & (capacity - 1))


def _spread_hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value ^ (value >> 16)


class _Entry:
    __slots__ = ("left", "name", "parent", "red", "right")

    def __init__(self, name: str, parent: _Entry | None) -> None:
        self.name = name
        self.parent = parent
        self.left: _Entry | None = None
        self.right: _Entry | None = None
        self.red = parent is not None


class TreeSet:
    """A TreeSet<String> whose order (``before(one, other)``) may change while it is filled, as in Java.

    Elements stay where they were put. Where a new one goes depends on which it is compared with, so the tree is balanced as
    TreeMap balances it: a red-black tree.
    """

    def __init__(self, before: Callable[[str, str], bool]) -> None:
        self._before = before
        self._root: _Entry | None = None

    def add(self, name: str) -> None:
        """Puts ``name`` in, unless it is found on the way to its place."""
        at, parent, is_left = self._root, None, False
        while at is not None:
            if at.name == name:
                return
            parent, is_left = at, self._before(name, at.name)
            at = at.left if is_left else at.right
        entry = _Entry(name, parent)
        if parent is None:
            self._root = entry
        elif is_left:
            parent.left = entry
        else:
            parent.right = entry
        self._balance(entry)

    def items(self) -> list[str]:
        """The names in order."""
        found: list[str] = []
        above: list[_Entry] = []
        at = self._root
        while at is not None or above:
            while at is not None:
                above.append(at)
                at = at.left
            entry = above.pop()
            found.append(entry.name)
            at = entry.right
        return found

    def _balance(self, entry: _Entry) -> None:
        while (parent := entry.parent) is not None and parent.red and (grand := parent.parent) is not None:
            parent_is_left = parent is grand.left
            uncle = grand.right if parent_is_left else grand.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                grand.red = True
                entry = grand
                continue
            if entry is (parent.right if parent_is_left else parent.left):
                self._rotate(parent, to_left=parent_is_left)
                entry, parent = parent, entry
            parent.red, grand.red = False, True
            self._rotate(grand, to_left=not parent_is_left)
        if self._root is not None:
            self._root.red = False

    def _rotate(self, entry: _Entry, *, to_left: bool) -> None:
        child = entry.right if to_left else entry.left
        if child is None:
            return
        inner = child.left if to_left else child.right
        if to_left:
            entry.right, child.left = inner, entry
        else:
            entry.left, child.right = inner, entry
        if inner is not None:
            inner.parent = entry
        above = entry.parent
        child.parent, entry.parent = above, child
        if above is None:
            self._root = child
        elif above.left is entry:
            above.left = child
        else:
            above.right = child
