"""Paths through a model with its patterns and norm scales held fixed: exact sums, and what each order is worth."""

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Frozen": "headway.paths.frozen",
        "PathTerm": "headway.paths.expand",
        "enumerate_paths": "headway.paths.expand",
        "order_logits": "headway.paths.expand",
        "term_importance": "headway.paths.importance",
    },
)
