"""Views: pictures as data, and their renderings as text, SVG, PNG and one self-contained HTML page.

Views take arrays, labels and tables and know nothing of models. matplotlib, jinja2 and rich load when first needed.
"""

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Bars": "headway.views.figures",
        "Figure": "headway.views.figures",
        "HeatMap": "headway.views.figures",
        "Lines": "headway.views.figures",
        "Scatter": "headway.views.figures",
        "to_png": "headway.views.still",
        "to_svg": "headway.views.still",
        "table_text": "headway.views.text",
        "Page": "headway.views.page",
        "PageTable": "headway.views.page",
        "Section": "headway.views.page",
        "page_html": "headway.views.page",
    },
)
