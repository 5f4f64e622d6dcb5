"""Applications as Faust's users write them: run by Faust itself and, unchanged, here. Each is a module of its own.

``setup`` makes the App of a side: its id and the names of its topics end with ``SIDE``, so that both share a broker.
"""
