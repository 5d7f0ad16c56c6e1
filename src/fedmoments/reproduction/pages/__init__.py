"""What people see of a reproduced table or figure: a page, a summary in Markdown, drawings, and one page of all."""

from fedmoments.reproduction.pages.figures import figure_files
from fedmoments.reproduction.pages.index import index_summary, render_index
from fedmoments.reproduction.pages.markdown import summary
from fedmoments.reproduction.pages.page import render_page

__all__ = ["figure_files", "index_summary", "render_index", "render_page", "summary"]
