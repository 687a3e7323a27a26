"""Training a byte-level BPE tokenizer: every text has an encoding, and `<|bos|>` is id 0."""

from __future__ import annotations

from collections.abc import Iterable

from headway.errors import ConfigProblem, TextProblem
from headway.tokens.tokenizer import Tokenizer


def train_bpe(texts: Iterable[str], d_vocab: int) -> Tokenizer:
    """A byte-level BPE of `d_vocab` tokens: `<|bos|>`, 256 bytes, then merges, most frequent first.

    Raises TextProblem when the texts hold too few repeated pairs for that many tokens, ConfigProblem for fewer than 257.
    """
    if d_vocab < 257:
        raise ConfigProblem("d_vocab of a byte-level tokenizer", expected="at least 257", got=d_vocab)
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, pre_tokenizers, trainers

    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=d_vocab,
        special_tokens=["<|bos|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    if backend.get_vocab_size() != d_vocab:
        raise TextProblem(
            "too little text for this vocabulary",
            expected=f"d_vocab={d_vocab} tokens",
            got=f"{backend.get_vocab_size()}",
            next_step="Give more text",
        )
    return Tokenizer.from_json(backend.to_str())
