"""What a site's answers tell of its samples: gradients turned back into what they were computed from, and how well."""

from .inversion import Known, Layers, by_matching, layers, read_off
from .meter import Leak, attacked, measure

__all__ = ["Known", "Layers", "Leak", "attacked", "by_matching", "layers", "measure", "read_off"]
