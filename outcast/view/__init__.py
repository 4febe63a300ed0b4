"""What people see of a run: figures, the report, and tables in a terminal."""

from outcast import members

TYPE_CHECKING = False  # See outcast/__init__.py.
if TYPE_CHECKING:
    from outcast.quantities import format_ratio
    from outcast.view.figures import draw_one
    from outcast.view.figures.style import heading, log_scale, new
    from outcast.view.listings import MOST_ROWS
    from outcast.view.palette import GREY, run_colours, series_colour
    from outcast.view.report import page
    from outcast.view.summary_words import main_ratio
    from outcast.view.terminal import forms
else:
    __getattr__ = members(
        __name__,
        {
            "outcast.quantities": "format_ratio",
            "outcast.view.figures": "draw_one",
            "outcast.view.figures.style": "heading log_scale new",
            "outcast.view.listings": "MOST_ROWS",
            "outcast.view.palette": "GREY run_colours series_colour",
            "outcast.view.report": "page",
            "outcast.view.summary_words": "main_ratio",
            "outcast.view.terminal": "forms",
        },
    )
