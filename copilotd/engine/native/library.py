"""The compiled kernels as Python sees them: the structures of `kernels/*.h`, and the functions."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_float, c_int64, c_void_p
from functools import cache
from pathlib import Path

from copilotd.engine.native.build import CannotBuild, built

INT8, NF4 = 0, 1
"""`Product.kind`"""


class Product(Structure):
    _fields_ = (
        ("weight", c_void_p),
        ("scale", c_void_p),
        ("outputs", c_int64),
        ("inputs", c_int64),
        ("kind", c_int64),
    )


class Layer(Structure):
    _fields_ = (
        ("attention_norm", c_void_p),
        ("qkv", Product),
        ("qkv_bias", c_void_p),
        ("output", Product),
        ("mlp_norm", c_void_p),
        ("gate_up", Product),
        ("down", Product),
        ("window", c_int64),
    )


class Decoder(Structure):
    _fields_ = (
        ("hidden", c_int64),
        ("intermediate", c_int64),
        ("heads", c_int64),
        ("key_heads", c_int64),
        ("head_size", c_int64),
        ("layers", c_int64),
        ("layer", POINTER(Layer)),
        ("norm", c_void_p),
        ("head", Product),
        ("cosine", c_void_p),
        ("sine", c_void_p),
        ("epsilon", c_float),
    )


class Cache(Structure):
    _fields_ = (("keys", c_void_p), ("values", c_void_p), ("rows", c_int64))


def loaded(path: Path) -> ctypes.CDLL:
    """Raises CannotBuild where the system refuses it."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CannotBuild(f"{error}; programs may have to be allowed on that file system") from None


@cache
def kernels() -> ctypes.CDLL:
    """Compiled where they are not yet. Raises CannotBuild. A call lets go of the interpreter's lock."""
    library = loaded(built())
    library.activations_bytes.argtypes = [c_int64, c_int64]
    library.activations_bytes.restype = c_int64
    library.multiply_floats.argtypes = [
        POINTER(Product), c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int64,
    ]  # fmt: skip
    library.multiply_floats.restype = None
    library.prefer_large_pages.argtypes = [c_void_p, c_int64]
    library.prefer_large_pages.restype = None
    library.scratch_bytes.argtypes = [POINTER(Decoder), c_int64, c_int64]
    library.scratch_bytes.restype = c_int64
    library.step.argtypes = [
        POINTER(Decoder), POINTER(Cache), c_void_p, c_int64, c_int64, c_void_p, c_int64, c_int64, c_void_p, c_int64,
    ]  # fmt: skip
    library.step.restype = None
    return library
