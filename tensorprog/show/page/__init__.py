"""report.html: everything a run found on one page that needs nothing else, to be read on paper, phones and screens."""

from tensorprog.show.page.html import Page

__all__ = ["Page"]
