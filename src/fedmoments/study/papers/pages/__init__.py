"""What people see of a reproduced table or figure: a page, a summary in Markdown, drawings, and one page of all."""

from fedmoments.study.papers.pages.figures import figure_files
from fedmoments.study.papers.pages.index import index_summary, render_index
from fedmoments.study.papers.pages.markdown import summary
from fedmoments.study.papers.pages.page import render_page

__all__ = ["figure_files", "index_summary", "render_index", "render_page", "summary"]
