"""Builds the optional loops in C where STREAMSRT_NATIVE=1 asks for them; without it, the wheel is pure Python."""

import os

from setuptools import Extension, setup

SOURCES = {
    "_streamsrt_kernels": "streamsrt/wire/kernels.c",
    "_streamsrt_avro": "streamsrt/avro/kernels.c",
    "_streamsrt_models": "topology/spec/model_reading.c",
}
NATIVE = os.environ.get("STREAMSRT_NATIVE") == "1"

setup(ext_modules=[Extension(name, [path], extra_compile_args=["-O3"]) for name, path in SOURCES.items() if NATIVE])
