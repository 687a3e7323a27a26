"""Models written by hand: named residual subspaces, and heads that read and write them, each with its proof.

A head is a `Part`: a look (`Offset`, `Match`, `MatchNotSelf`, `Pointer`, `Seek`, `Everywhere`) and a move (`Copy`,
`Translate`). `compile_model` joins parts into `Weights` for a `Plan`: subspaces, scales, weights over frequencies.
"""

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Built": "headway.sources.handmade.built",
        "Copy": "headway.sources.handmade.parts",
        "Everywhere": "headway.sources.handmade.copying",
        "Match": "headway.sources.handmade.match",
        "MatchNotSelf": "headway.sources.handmade.match_not_self",
        "Offset": "headway.sources.handmade.offset",
        "Part": "headway.sources.handmade.parts",
        "Plan": "headway.sources.handmade.plan",
        "Pointer": "headway.sources.handmade.pointer",
        "Seek": "headway.sources.handmade.skip_trigram",
        "Space": "headway.sources.handmade.subspaces",
        "Translate": "headway.sources.handmade.parts",
        "best_penalty": "headway.sources.handmade.match_not_self",
        "best_weights": "headway.sources.handmade.kernels",
        "bigram_model": "headway.sources.handmade.bigram",
        "compile_model": "headway.sources.handmade.compiler",
        "copying_model": "headway.sources.handmade.copying",
        "induction_model": "headway.sources.handmade.induction",
        "pointer_model": "headway.sources.handmade.pointer",
        "previous_token_model": "headway.sources.handmade.previous_token",
        "rotary_induction_model": "headway.sources.handmade.induction",
        "skip_trigram_model": "headway.sources.handmade.skip_trigram",
        "two_back_model": "headway.sources.handmade.two_back",
    },
)
