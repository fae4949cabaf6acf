"""Reads the arrays of Cifar's python archive without trusting it: of all such a file can ask for, only numpy arrays.

The publisher's files are Python pickles, which can run any code when opened the usual way.
"""

import io
import pickle
from typing import Any

ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"asks for {module}.{name}, which an image archive has no need of")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def load_arrays(content: bytes) -> dict[bytes, Any]:
    """The dictionary of one batch file; raises ValueError for anything else."""
    try:
        found = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:
        raise ValueError(str(error)) from error
    if not isinstance(found, dict):
        raise ValueError("not a dictionary")
    return found
