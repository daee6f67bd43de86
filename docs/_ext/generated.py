"""The directive `generated`: ```` ```{generated} atoms ```` on a page stands for what `tables.atoms` writes."""

import tables
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

PAGES = {"schema": tables.schema, "atoms": tables.atoms, "commands": tables.commands}


class Generated(SphinxDirective):
    """The Markdown of a function in `PAGES`, with its headings."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parse what the function returns; its sections go where the page is."""
        box = nodes.section()
        lines = StringList(PAGES[self.arguments[0]]().splitlines(), source=self.arguments[0])
        self.state.nested_parse(lines, self.content_offset, box, match_titles=True)
        return box.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Enter the directive."""
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
