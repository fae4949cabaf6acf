"""Figures, tables and the page that shows a run or a comparison."""

from .clusters import found_clusters
from .comparison_table import comparison_table
from .figures import draw_figures
from .page import write_report
from .remarks import remarks
from .watch import server
from .why import Reason, reason

__all__ = [
    "Reason",
    "comparison_table",
    "draw_figures",
    "found_clusters",
    "reason",
    "remarks",
    "server",
    "write_report",
]
