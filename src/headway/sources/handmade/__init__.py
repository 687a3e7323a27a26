"""Models written by hand: named residual subspaces, and heads that read and write them, each with its proof."""

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Built": "headway.sources.handmade.built",
        "Space": "headway.sources.handmade.subspaces",
        "induction_head": "headway.sources.handmade.induction",
        "induction_model": "headway.sources.handmade.induction",
        "previous_token_head": "headway.sources.handmade.previous_token",
        "previous_token_model": "headway.sources.handmade.previous_token",
    },
)
