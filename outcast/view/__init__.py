"""What people see of a run: figures, the report, and tables in a terminal."""

from outcast import members

TYPE_CHECKING = False  # See outcast/__init__.py.
if TYPE_CHECKING:
    from outcast.quantities import format_ratio
    from outcast.view.figures import draw_one
    from outcast.view.figures.parts import Bars, Line, bounds, draw_bars, draw_lines, set_amounts
    from outcast.view.figures.style import heading, log_scale, new, save, styled
    from outcast.view.listings import MOST_ROWS
    from outcast.view.palette import (
        BLUE,
        GREEN,
        GREY,
        PURPLE,
        VERMILION,
        class_colours,
        run_colours,
        series_colour,
        shaded,
    )
    from outcast.view.report import page
    from outcast.view.report.packed import Columns
    from outcast.view.sender_series import numbers, thin
    from outcast.view.summary_words import main_ratio
    from outcast.view.terminal import forms
else:
    __getattr__ = members(
        __name__,
        {
            "outcast.view.figures.parts": "Bars Line bounds draw_bars draw_lines set_amounts",
            "outcast.quantities": "format_ratio",
            "outcast.view.figures": "draw_one",
            "outcast.view.figures.style": "heading log_scale new save styled",
            "outcast.view.listings": "MOST_ROWS",
            "outcast.view.palette": (
                "BLUE GREEN GREY PURPLE VERMILION class_colours run_colours series_colour shaded"
            ),
            "outcast.view.report": "page",
            "outcast.view.report.packed": "Columns",
            "outcast.view.sender_series": "numbers thin",
            "outcast.view.summary_words": "main_ratio",
            "outcast.view.terminal": "forms",
        },
    )
