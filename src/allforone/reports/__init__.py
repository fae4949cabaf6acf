"""Figures, tables and the page that shows a run or a comparison."""

from .comparison_table import comparison_table
from .figures import draw_figures
from .page import write_report
from .remarks import remarks
from .watch import server

__all__ = ["comparison_table", "draw_figures", "remarks", "server", "write_report"]
