"""Pairs of versions of an application, made by chance, and upgrades from one to the other.

- ``programs``   a program as a value, what its topology is, and what its results must be
- ``pairs``      the kinds of change, and pairs of programs that differ by some of them
- ``rolling``    an upgrade of simulated instances, with what goes wrong meanwhile
- ``judging``    whether what happened is what the comparison of the two versions says
- ``__main__``   ``python -m tests.upgrades --pairs 300``: many pairs by the simulator

What a version processes is known apart from its state: each table writes beside its result which records it has counted. So
what a store must have at the end can be computed without any store.
"""
