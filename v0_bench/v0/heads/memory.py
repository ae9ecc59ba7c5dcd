"""Keeps freed memory in the process, for heads whose activations take gigabytes."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_freed_memory() -> bool:
    """Tells the allocator to keep what is freed; True where it is glibc's and has agreed.

    By default each large tensor is memory fresh from the kernel, which clears it page by page, and
    is handed back when freed: in a training step of TabPFN on a CPU that costs as much as the
    matrix products. The process then holds its peak memory until it ends, so this is for a training
    program to call once at its start, not for a library.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1))  # none; never
