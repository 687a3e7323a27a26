"""`Tokenizer`: a tokenizer as a value. Two with the same JSON are equal, so it can travel inside frozen `Weights`."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, SupportsIndex

from headway.errors import FileProblem, TextProblem, TokenProblem, UnknownName, did_you_mean
from headway.tokens.labels import alphabet_to_bytes, visible

if TYPE_CHECKING:
    import tokenizers

BOS = "<|bos|>"


@dataclass(frozen=True, repr=False)
class Tokenizer:
    """Text to ids and back. Build it with `from_json`; equality and hash are those of the JSON.

    Encoding reads text as plain text: `<|bos|>` typed in a text is seven ordinary characters, never the special token,
    and no special token is added. Decoding works on bytes, so an id that holds
    part of a character gives the replacement character.

    >>> tok = Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}}')
    >>> tok.encode("abab"), tok.decode([0, 2]), tok.d_vocab, tok.bos
    ([2, 2], 'aab', 3, None)
    """

    json_text: str

    @classmethod
    def from_json(cls, text: str, *, where: str | None = None) -> Tokenizer:
        """Read the JSON format of the `tokenizers` package (`tokenizer.json`).

        Raises FileProblem when it is not JSON or not a tokenizer; `where` names the file in the message.
        """
        try:
            document = json.loads(text)
        except (TypeError, ValueError) as error:
            raise FileProblem("not a tokenizer: no valid JSON", where=where, got=str(error)) from error
        if not isinstance(document, dict) or "model" not in document:
            raise FileProblem("not a tokenizer", where=where, expected="a tokenizer.json object with a `model`")
        compact = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        try:
            _parse(compact)
        except Exception as error:  # the package raises bare Exception for every malformed document
            raise FileProblem("not a tokenizer this version can read", where=where, got=str(error)) from error
        return cls(compact)

    def to_json(self) -> str:
        """The JSON that `from_json` reads back to an equal tokenizer."""
        return self.json_text

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without special tokens. Raises TextProblem for what is not Unicode text."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of many texts at once, in parallel threads."""
        for text in texts:
            _check_text(text)
        return [e.ids for e in self._parsed.backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """Text of ids, special tokens as they are written. Raises TokenProblem for ids outside the vocabulary."""
        known = [self._checked(i) for i in ids]
        if self._parsed.byte_level:
            return b"".join(self._parsed.data[i] for i in known).decode("utf-8", errors="replace")
        return "".join(self._parsed.tokens[i] for i in known)

    def token_bytes(self, token: SupportsIndex) -> bytes:
        """The bytes one id stands for; of a special token, its text."""
        return self._parsed.data[self._checked(token)]

    def label(self, token: SupportsIndex) -> str:
        """What to print for an id: whitespace and broken bytes made visible, specials as they are.

        Not every label is unique (a real `·` looks like a space): print the id beside it where that matters.
        """
        return self._parsed.labels[self._checked(token)]

    def labels(self, ids: Iterable[SupportsIndex]) -> list[str]:
        """`label` of each id."""
        return [self.label(i) for i in ids]

    def find(self, text: str) -> int:
        """The id of the one token that is exactly `text`, or has this label, or is written `#123`.

        Raises UnknownName with near tokens, and with what the text encodes to, when there is no such token.
        """
        parsed = self._parsed
        exact = parsed.ids.get(_exact_bytes(text))
        if exact is not None:
            return exact
        same_label = parsed.by_label.get(text, [])
        if len(same_label) == 1:
            return same_label[0]
        if text.startswith("#") and text[1:].isascii() and text[1:].isdigit():
            return self._checked(int(text[1:]))
        if same_label:
            several = " or ".join(f"#{i}" for i in same_label[:6])
            raise UnknownName(
                f"{text!r} is the label of {len(same_label)} tokens", next_step=f"Name one by id: {several}"
            )
        raise UnknownName(
            f"{text!r} is not one token",
            expected="the exact text of one token, its label, or #ID",
            got=self._spelled_out(text),
            next_step=self._near(text),
        )

    @property
    def d_vocab(self) -> int:
        """Size of the vocabulary: highest id + 1."""
        return len(self._parsed.tokens)

    @property
    def bos(self) -> int | None:
        """Id of `<|bos|>`, or None when the vocabulary has none."""
        return self._parsed.backend.token_to_id(BOS)

    def __repr__(self) -> str:
        return f"Tokenizer({self.d_vocab} tokens)"

    @property
    def _parsed(self) -> _Parsed:
        return _parse(self.json_text)

    def _checked(self, token: object) -> int:
        try:
            number = operator.index(token)  # type: ignore[arg-type]
        except TypeError as error:
            raise TokenProblem("a token id is a whole number", got=repr(token)) from error
        if not 0 <= number < self.d_vocab:
            raise TokenProblem(
                "no such token id", expected=f"0 to {self.d_vocab - 1} (d_vocab={self.d_vocab})", got=number
            )
        return number

    def _spelled_out(self, text: str) -> str:
        try:
            ids = self.encode(text)
        except TextProblem:
            return "what is not text"
        shown = ", ".join(f"{self.label(i)} (#{i})" for i in ids[:8])
        more = f", and {len(ids) - 8} more" if len(ids) > 8 else ""
        return f"{len(ids)} tokens: {shown}{more}" if ids else "no token at all"

    def _near(self, text: str) -> str | None:
        """Near tokens, looked for only among those of like length and beginning: vocabularies are long."""
        wanted = visible(text)
        core = wanted.strip("·").casefold()
        if not core:
            return None
        like = {label: label.strip("·").casefold() for label in self._parsed.by_label}
        twins = [label for label, bare in like.items() if bare == core]
        if twins:
            return "Did you mean " + " or ".join(twins[:3]) + "?"
        near = [label for label, bare in like.items() if bare[:1] == core[:1] and abs(len(bare) - len(core)) <= 2]
        return did_you_mean(wanted, near[:2000]) or None


@dataclass(frozen=True)
class _Parsed:
    """The parsed document and what is looked up in it again and again."""

    backend: tokenizers.Tokenizer
    tokens: list[str]  # by id, "" in gaps
    added: frozenset[int]  # special and other added tokens, stored as text and not in the byte alphabet
    byte_level: bool

    @cached_property
    def data(self) -> list[bytes]:
        return [
            alphabet_to_bytes(token) if self.byte_level and i not in self.added else token.encode()
            for i, token in enumerate(self.tokens)
        ]

    @cached_property
    def labels(self) -> list[str]:
        return [visible(data) for data in self.data]

    @cached_property
    def ids(self) -> dict[bytes, int]:
        # Backwards, so that of two ids with the same bytes the lower one is found.
        return {data: i for i, data in reversed(list(enumerate(self.data))) if data}

    @cached_property
    def by_label(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for i, label in enumerate(self.labels):
            if label:
                found.setdefault(label, []).append(i)
        return found


@lru_cache(maxsize=16)
def _parse(text: str) -> _Parsed:
    import tokenizers  # late: `headway.tokens` itself must cost nothing

    backend = tokenizers.Tokenizer.from_str(text)
    backend.encode_special_tokens = True  # text is data: a `<|bos|>` inside it is not an instruction
    backend.no_padding()
    backend.no_truncation()
    vocab = backend.get_vocab(with_added_tokens=True)
    tokens = [""] * (max(vocab.values(), default=-1) + 1)
    for token, i in vocab.items():
        tokens[i] = token
    added = frozenset(backend.get_added_tokens_decoder())
    return _Parsed(backend, tokens, added, byte_level=_mentions_byte_level(json.loads(text)))


def _mentions_byte_level(document: dict[str, object]) -> bool:
    """Whether the pre-tokenizer or decoder is ByteLevel, alone or in a sequence."""

    def within(part: object) -> bool:
        if isinstance(part, dict):
            return part.get("type") == "ByteLevel" or any(within(value) for value in part.values())
        return isinstance(part, list) and any(within(value) for value in part)

    return within(document.get("pre_tokenizer")) or within(document.get("decoder"))


def _exact_bytes(text: str) -> bytes:
    """UTF-8, with what `surrogateescape` made of broken bytes turned back; empty for other surrogates."""
    try:
        return text.encode("utf-8", errors="surrogateescape")
    except UnicodeEncodeError:
        return b""


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise TextProblem("a text is a str", got=type(text).__name__)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TextProblem("not Unicode text: a lone surrogate", got=f"position {error.start}") from error
