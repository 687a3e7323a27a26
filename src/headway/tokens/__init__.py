"""Tokens: text to ids and back, and names for tokens that a person can read.

`Tokenizer` wraps the `tokenizers` package, works on bytes, and never touches the network.
"""

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Tokenizer": "headway.tokens.tokenizer",
        "printable": "headway.tokens.labels",
        "visible": "headway.tokens.labels",
    },
)
