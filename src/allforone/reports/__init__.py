"""Figures, tables and the page that shows a run or a comparison."""

from .figures import draw_figures
from .page import write_report
from .plain_table import FORMATS, plain_table
from .remarks import remarks
from .table import terminal_table
from .watch import server

__all__ = ["FORMATS", "draw_figures", "plain_table", "remarks", "server", "terminal_table", "write_report"]
