"""Numbers as short text in the page's JSON; numbers.js reads them."""

import base64
from typing import Any

import numpy as np
import numpy.typing as npt

#: What spans orders of magnitude is packed in single precision, the rest in sixteen bits.
FINE = ("bias", "noise")
#: In sixteen bits, what is not known.
NOT_KNOWN = 65535


def packed(values: npt.NDArray[Any], coarse: bool = False, top: float | None = None) -> dict[str, Any]:
    """Base64 of single-precision numbers or, coarse, of sixteen-bit shares of the largest, `top`."""
    if not coarse and top is None:
        return {"shape": values.shape, "numbers": _text(values.astype("<f4"))}
    top = top or float(np.nanmax(values, initial=0.0)) or 1.0
    shares = np.where(np.isfinite(values), np.rint(np.clip(values, 0, top) / top * (NOT_KNOWN - 1)), NOT_KNOWN)
    return {"shape": values.shape, "top": top, "numbers": _text(shares.astype("<u2"))}


def _text(values: npt.NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode()
