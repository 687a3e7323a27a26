"""Models trained here: corpus, tokenizer, recipes, loop, checkpoints. The same `Weights`, the same forward pass."""

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Corpus": "headway.sources.trained.corpus",
        "Recipe": "headway.sources.trained.recipes",
        "held_out_loss": "headway.sources.trained.training",
        "read_corpus": "headway.sources.trained.corpus",
        "recipe": "headway.sources.trained.recipes",
        "standard_library": "headway.sources.trained.corpus",
        "train": "headway.sources.trained.training",
    },
)
