"""Builds the optional loops in C where STREAMSRT_NATIVE=1 asks for them; without it, the wheel is pure Python."""

import os

from setuptools import Extension, setup

NATIVE = os.environ.get("STREAMSRT_NATIVE") == "1"
KERNELS = Extension("_streamsrt_kernels", ["streamsrt/wire/kernels.c"], extra_compile_args=["-O3"])

setup(ext_modules=[KERNELS] if NATIVE else [])
