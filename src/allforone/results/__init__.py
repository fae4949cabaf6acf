"""What training gives, and life after it: results kept, asked, gone on with, joined and left."""

from .again import carry_out, start_from
from .compared import Compared, compare
from .trained import Trained

__all__ = ["Compared", "Trained", "carry_out", "compare", "start_from"]
