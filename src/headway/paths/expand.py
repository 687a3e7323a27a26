"""The path expansion, exactly: term by term for small models, order by order for any.

Patterns and norm scales are those of a recording. A path starts at a source and passes heads of rising layers; its
order is the number of heads it passes. Sources: the token, its learned position, b_O of each layer, and of each head
W_O b_V and W_OV beta, which count as passing that head. W_U beta of the final norm and b_U end at once. All paths
together are the logits of the recording, at every position, padded ones included.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from headway.algebra.given import whole_number
from headway.errors import TooLarge, UsageError
from headway.ids import HeadId, PathId
from headway.model.recording import Recording
from headway.paths.frozen import Frozen, detached, highest_order
from headway.shapes import Logits, Stream

MOST_PATHS = 100_000  # walks longer than this are refused; sums by order have no such limit


@dataclass(frozen=True, eq=False, slots=True)
class PathTerm:
    """One term of the expansion: the heads it passes, where it starts, and its logits [batch, pos, vocab].

    source: `token`, `position`, `L0.b_O`, `L0H1.b_V` (W_O b_V), `L0H1.beta` (W_OV beta), `final.beta`, `b_U`.
    """

    path: PathId
    source: str
    logits: Logits


def enumerate_paths(recording: Recording, *, max_order: int | None = None) -> Iterator[PathTerm]:
    """Every path of order <= max_order (default: all), from every source that the model has.

    Their logits sum to the recording's when nothing was edited and max_order is n_layers. There are about
    sum_k C(n_layers, k) n_heads^k of them for each source: raises TooLarge above 100,000.

    >>> from headway.sources.handmade import induction_model
    >>> from headway.model.forward import run
    >>> recording = run(induction_model().weights, torch.tensor([[0, 1, 2, 1]]))
    >>> terms = list(enumerate_paths(recording))
    >>> bool((sum(t.logits for t in terms) - recording.logits).abs().max() < 1e-9)
    True
    """
    recording = detached(recording)
    frozen, highest = Frozen(recording), highest_order(recording, max_order)
    c = recording.weights.config
    count = path_count(c.n_layers, c.n_heads, highest)
    if count > MOST_PATHS:
        raise TooLarge(
            "too many paths to list",
            expected=f"at most {MOST_PATHS:,}",
            got=f"{count:,} of order <= {highest}",
            next_step="Lower max_order; order_logits sums all paths of an order in one pass",
        )
    for source, path, layer, stream in _sources(frozen):
        if len(path) <= highest:
            yield from _walk(frozen, source, path, (layer, stream), highest)
    yield from _ends(frozen)


def order_logits(
    recording: Recording, *, max_order: int | None = None, heads: Iterable[str | HeadId] | None = None
) -> Iterator[Logits]:
    """Logits of all paths of order <= k together, for k = 0, 1, ... max_order (default n_layers): one pass for each k.

        S^k_l = S_0 + sum_{l' < l} ( b_O^{l'} + heads_{l'}(S^{k-1}_{l'}) ),   logits^k = unembed(S^k_{n_layers})

    heads_l includes W_O b_V and W_OV beta, so these are of order 1 and up; b_O, the final beta and b_U are in every
    order. The last are the recording's logits. heads: paths through these heads only, the others' results (with
    their biases) taken out. Raises UnknownName for a head that does not exist.

    >>> from headway.sources.handmade import induction_model
    >>> from headway.model.forward import run
    >>> len(list(order_logits(run(induction_model().weights, torch.tensor([[0, 1, 2, 1]])))))
    3
    """
    recording = detached(recording)
    frozen, highest = Frozen(recording), highest_order(recording, max_order)
    weights = recording.weights
    n_layers, start = weights.config.n_layers, recording.streams[0]
    chosen = _chosen(recording, heads)
    b_O = weights.b_O
    before: list[Stream] = []  # S^{k-1}_l, l = 0 .. n_layers - 1
    for order in range(highest + 1):
        stream, now = start, []
        for layer in range(n_layers):
            now.append(stream)
            if order:
                stream = stream + frozen.layer(layer, before[layer], chosen[layer])
            if b_O is not None:
                stream = stream + b_O[layer]
        before = now
        yield frozen.unembed(stream) + frozen.final_constant()


def path_count(n_layers: int, n_heads: int, max_order: int) -> int:
    """Head sequences of rising layers with at most max_order heads: sum_k C(n_layers, k) n_heads^k.

    Raises UsageError for what is no whole number >= 0.

    >>> path_count(2, 12, 2)
    169
    """
    for what, n in (("n_layers", n_layers), ("n_heads", n_heads), ("max_order", max_order)):
        whole_number(n, f"{what} of a number of paths", least=0)
    return sum(math.comb(n_layers, k) * n_heads**k for k in range(max_order + 1))


def _sources(frozen: Frozen) -> Iterator[tuple[str, tuple[HeadId, ...], int, Stream]]:
    """(name, heads already passed, first layer that can read it, what it puts into the stream) of every source."""
    recording = frozen.recording
    weights = recording.weights
    yield "token", (), 0, F.embedding(recording.tokens, weights.W_E.T)
    if weights.W_pos is not None:
        yield "position", (), 0, F.embedding(_positions(recording), weights.W_pos.T)
    everywhere = torch.ones_like(recording.streams[0][..., :1])
    if weights.b_O is not None:
        for layer, bias in enumerate(weights.b_O):
            yield f"L{layer}.b_O", (), layer + 1, everywhere * bias
    for at in weights.head_ids():
        head, beta = weights.head(at), frozen.beta(at.layer)
        if head.b_V is not None:
            yield f"{at}.b_V", (at,), at.layer + 1, frozen.row_sums(at) * (head.W_O @ head.b_V)
        if beta is not None:
            yield f"{at}.beta", (at,), at.layer + 1, frozen.row_sums(at) * (head.W_O @ (head.W_V @ beta))


def _walk(
    frozen: Frozen, source: str, path: tuple[HeadId, ...], at: tuple[int, Stream], highest: int
) -> Iterator[PathTerm]:
    """The path that ends here, and every longer one: depth first, so that a shared beginning is computed once."""
    first_layer, stream = at
    c = frozen.recording.weights.config
    yield PathTerm(PathId(path), source, frozen.unembed(stream))
    if len(path) == highest:
        return
    for layer in range(first_layer, c.n_layers):
        for head in (HeadId(layer, h) for h in range(c.n_heads)):
            yield from _walk(frozen, source, (*path, head), (layer + 1, frozen.through(head, stream)), highest)


def _ends(frozen: Frozen) -> Iterator[PathTerm]:
    """What never enters the stream: W_U beta of the final norm, and b_U."""
    weights, logits = frozen.recording.weights, frozen.recording.logits
    beta = frozen.beta(weights.config.n_layers)
    if beta is not None:
        yield PathTerm(PathId(), "final.beta", (weights.W_U @ beta).expand_as(logits))
    if weights.b_U is not None:
        yield PathTerm(PathId(), "b_U", weights.b_U.expand_as(logits))


def _positions(recording: Recording) -> Tensor:
    """Position of each token in its own row, padding not counted; as the forward pass counts."""
    tokens, keep = recording.tokens, recording.keep
    if keep is None:
        return torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    return (keep.cumsum(-1) - 1).clamp_min(0)


def _chosen(recording: Recording, heads: Iterable[str | HeadId] | None) -> list[Tensor | None]:
    """For each layer a mask over its heads, None where all take part."""
    weights = recording.weights
    c = weights.config
    if heads is None:
        return [None] * c.n_layers
    if isinstance(heads, str | HeadId):
        heads = [heads]
    if not isinstance(heads, Iterable):
        raise UsageError("heads of the paths", expected="a list of heads, such as ['L0H1']", got=repr(heads))
    mask = torch.zeros(c.n_layers, c.n_heads, dtype=torch.bool, device=recording.tokens.device)
    for name in heads:
        head = weights.head_id(name)
        mask[head.layer, head.head] = True
    return list(mask)
