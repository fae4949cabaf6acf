"""Figures, tables and the page that shows a run or a comparison."""

from .figures import draw_curves
from .page import write_report
from .remarks import remarks
from .table import terminal_table

__all__ = ["draw_curves", "remarks", "terminal_table", "write_report"]
