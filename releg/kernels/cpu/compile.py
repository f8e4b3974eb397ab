"""How the parts of the CPU kernel are compiled.

No part allocates: without numba's reference counts (of some twenty arrays at every call) the kernel is two and a half
times as fast. Passing Scratch is a copy of 1 KiB: steps take it from the block they are called with, and what they call
is inlined. Steps are functions of their own, as numba is slow to compile large ones. Inlining is left to LLVM: numba's
own types and lowers a function anew wherever it is used, which takes longer to compile and is no faster.
"""

from __future__ import annotations

from numba import njit

OPTIONS = {"_nrt": False, "error_model": "numpy"}
# Only compiled code calls the parts (a call from Python would end the process): without wrappers for other callers they
# are compiled sooner.
_UNWRAPPED = {**OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

step = njit(**_UNWRAPPED)
inlined = njit(forceinline=True, **_UNWRAPPED)
