"""Builds the optional loops in C where STREAMSRT_NATIVE=1 asks for them; without it, the wheel is pure Python."""

import os

from setuptools import Extension, setup

SOURCES = {"_streamsrt_kernels": "streamsrt/wire/kernels.c", "_streamsrt_avro": "streamsrt/avro/kernels.c"}
NATIVE = os.environ.get("STREAMSRT_NATIVE") == "1"
KERNELS = [Extension(name, [source], extra_compile_args=["-O3"]) for name, source in SOURCES.items()]

setup(ext_modules=KERNELS if NATIVE else [])
