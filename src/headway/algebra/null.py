"""What chance gives: the value a score would take if only the directions of the weights were random.

Both nulls keep what training fixes without meaning to compose (spectra, and for copying the embedding and unembedding),
and redraw the directions. A Gaussian null of the same shape is several times too narrow for trained spectra.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from headway.algebra.given import real_tensor, whole_number
from headway.errors import BadInput, NotFinite, ShapeProblem, UsageError


def anisotropy(trace: float | Tensor, trace_of_square: float | Tensor, d: int) -> Tensor:
    """f(M) = tr M^2 / (tr M)^2 - 1/d of a Gram matrix M (symmetric, no negative eigenvalue) in d dimensions.

    Dimensionless, from 0 (the same in every direction) to 1 - 1/d (one direction). A zero matrix gives 0, never NaN.
    Elementwise over tensors. Raises BadInput where the traces cannot belong to a Gram matrix, NotFinite for NaN.
    Values within rounding of 0 are returned as 0, so that a constant score is seen to be constant.

    >>> anisotropy(5.0, 17.0, 2)  # M = diag(1, 4)
    tensor(0.1800, dtype=torch.float64)
    """
    _need_dimension(d, "anisotropy")
    t, t2 = _as_float(trace), _as_float(trace_of_square)
    if not bool(t.isfinite().all() and t2.isfinite().all()):
        raise NotFinite("NaN or infinity", where="anisotropy", expected="finite traces")
    zero = t == 0
    ratio = (t2 / t.masked_fill(zero, 1) / t.masked_fill(zero, 1)).masked_fill(zero, 1 / d)
    if bool((t < 0).any() or (t2 < 0).any() or (ratio > 1 + 1e-3).any()):
        raise BadInput(
            "these are not traces of a Gram matrix",
            where="anisotropy",
            expected="0 <= tr M and 0 <= tr M^2 <= (tr M)^2",
            got=f"tr M from {float(t.min()):.4g}, tr M^2 up to {float(ratio.max()):.4g} (tr M)^2",
        )
    f = ratio - 1 / d
    return f.masked_fill(f <= 4 * torch.finfo(f.dtype).eps, 0)


@dataclass(frozen=True, slots=True)
class CompositionNull:
    """Mean and variance of s^2, s = ||R W|| / (||R|| ||W||), under a random rotation between reader R and writer W.

    mean_square: E[s^2], exact; variance: Var[s^2], exact, one for each pair. Dimensionless.
    """

    mean_square: float
    variance: Float[Tensor, "*pair"]

    @property
    def rms(self) -> float:
        """Root mean square of the score, 1/sqrt(d): what stands beside a score on its own scale."""
        return self.mean_square**0.5

    def z(self, score: float | Tensor) -> Float[Tensor, "*pair"]:
        """(s^2 - E[s^2]) / sd(s^2). NaN where the null does not vary (a zero or isotropic matrix): flag it.

        Says how far from random directions; trained heads share directions, so alone it proves nothing.

        >>> float(CompositionNull(0.25, torch.tensor(0.01)).z(0.5))
        0.0
        """
        spread = self.variance.masked_fill(self.variance == 0, torch.nan).sqrt()
        return (_as_float(score).square() - self.mean_square) / spread


def composition_null(f_reader: float | Tensor, f_writer: float | Tensor, d: int) -> CompositionNull:
    """The rotation null of composition: E[s^2] = 1/d, Var[s^2] = 2 f(P) f(S) / ((d-1)(d+2)).

    f_reader = anisotropy of P = R^T R, f_writer of S = W W^T; both broadcast. Keeps both spectra whatever they are.
    d is d_model, or d_model - 1 for weights centred by folding LayerNorm. Why: with Q Haar, s^2 = tr(P Q S Q^T) /
    (tr P tr S). Its varying part is tr(P' Q S' Q^T) with P', S' traceless, of mean 0 and variance
    2 ||P'||^2 ||S'||^2 / ((d-1)(d+2)): rotations act irreducibly on traceless symmetric matrices, which have
    (d-1)(d+2)/2 dimensions (Schur).

    >>> composition_null(0.5, 0.5, 4).variance
    tensor(0.0278, dtype=torch.float64)
    """
    _need_dimension(d, "composition_null")
    reader, writer = _as_float(f_reader), _as_float(f_writer)
    for name, f in (("f_reader", reader), ("f_writer", writer)):
        if not bool(((f >= 0) & (f <= 1)).all()):
            raise BadInput(
                f"{name} is not an anisotropy",
                where="composition_null",
                expected=f"0 to {1 - 1 / d:.4g}",
                got=f"{float(f.min()):.4g} to {float(f.max()):.4g}",
                next_step="Use anisotropy().",
            )
    return CompositionNull(1 / d, 2 * reader * writer / ((d - 1) * (d + 2)))


def eigenvalue_ratio(eigenvalues: Complex[Tensor, "*batch n"] | Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
    """Sum of eigenvalues over sum of their absolute values: dimensionless, -1 to 1; 1 when all are positive.

    The sum is a trace, hence real. NaN where all are 0: flag it. (Elhage et al. 2021, copying by eigenvalues.)

    >>> eigenvalue_ratio(torch.tensor([3.0, 1.0, -1.0]))
    tensor(0.6000)
    """
    if not (isinstance(eigenvalues, Tensor) and eigenvalues.is_complex()):
        eigenvalues = real_tensor(eigenvalues, "eigenvalue_ratio", "or complex [..., n]")
    return eigenvalues.sum(-1).real / eigenvalues.abs().sum(-1)


def copying_null(
    between: Float[Tensor, "d d"],
    spectra_o: Float[Tensor, "head k"],
    spectra_v: Float[Tensor, "head k"],
    *,
    draws: int = 200,
    seed: int,
    d_head: int | None = None,
) -> Float[Tensor, "head draws"]:
    """Draws of the copying ratio when W_O and W_V keep their singular values but take random directions.

    between = W_E W_U [d_model, d_model] is kept. With W_O = Q1 S_o A^T and W_V = B S_v Q2^T, all four frames Haar, the
    eigenvalues of W_V (W_E W_U) W_O are those of S_v (Q2^T between Q1) S_o R, R = A^T B: only d_head x d_head results.
    Singular values are [head, min(d_head, d_model)]; `d_head` is needed only where it exceeds d_model (R is then a
    corner of a rotation). Draws share frames between heads, so values of one draw are not independent across heads.
    float64 on the CPU, seeded. A head whose W_O or W_V is zero gives NaN. The paper names no
    such reference beyond random matrices (Elhage et al. 2021, fn 17); this one is Headway's.

    >>> copying_null(torch.eye(6), torch.ones(3, 2), torch.ones(3, 2), draws=5, seed=0).shape
    torch.Size([3, 5])
    """
    where = "copying_null"
    given = ((between, "[d_model, d_model]"), (spectra_o, "[head, k]"), (spectra_v, "[head, k]"))
    g, s_o, s_v = (real_tensor(t, where, axes).detach().to("cpu", torch.float64) for t, axes in given)
    _check_copying(g, s_o, s_v)
    whole_number(draws, "draws", least=1, where=where)
    check_seed(seed)
    d, k = g.shape[0], s_o.shape[1]
    width = k if d_head is None else whole_number(d_head, "d_head", least=1, where=where)
    if k != min(width, d):
        raise ShapeProblem(
            "number of singular values",
            where="copying_null",
            expected=f"min(d_head, d_model) = {min(width, d)}",
            got=k,
            next_step="Keep the zeros among them; pass d_head= where it exceeds d_model.",
        )
    generator = torch.Generator().manual_seed(seed)
    ratios: list[Tensor] = []
    for _ in range(draws):  # one draw at a time: memory stays at [head, k, k]
        read, written = haar_frame(d, k, generator), haar_frame(d, k, generator)
        turn = haar_frame(width, k, generator)[:k]
        core = s_v[:, :, None] * (read.mT @ g @ written) * s_o[:, None, :] @ turn
        ratios.append(eigenvalue_ratio(torch.linalg.eigvals(core)))
    return torch.stack(ratios, dim=-1)


def haar_frame(d: int, k: int, generator: torch.Generator) -> Float[Tensor, "d k"]:
    """k orthonormal columns in d dimensions, uniform over all such frames (Haar), float64, from a CPU generator.

    QR of a Gaussian matrix; the sign fix makes it uniform, since LAPACK chooses signs of R (Mezzadri 2007).

    >>> q = haar_frame(5, 2, torch.Generator().manual_seed(0))
    >>> torch.allclose(q.T @ q, torch.eye(2, dtype=torch.float64))
    True
    """
    for name, value in (("d", d), ("k", k)):
        whole_number(value, name, least=0, where="haar_frame")
    if k > d:
        raise UsageError("no such frame", where="haar_frame", expected="0 <= k <= d", got=f"k={k}, d={d}")
    q, r = torch.linalg.qr(torch.randn(d, k, dtype=torch.float64, generator=generator))
    return q * torch.where(r.diagonal() < 0, -1.0, 1.0)


def _check_copying(g: Tensor, s_o: Tensor, s_v: Tensor) -> None:
    where = "copying_null"
    if g.ndim != 2 or g.shape[0] != g.shape[1]:
        raise ShapeProblem("W_E W_U is not square", where=where, expected="[d_model, d_model]", got=tuple(g.shape))
    if s_o.ndim != 2 or s_o.shape != s_v.shape:
        raise ShapeProblem(
            "spectra of W_O and W_V",
            where=where,
            expected="two [head, k] of equal shape",
            got=f"{tuple(s_o.shape)} and {tuple(s_v.shape)}",
        )
    if not all(bool(t.isfinite().all()) for t in (g, s_o, s_v)):
        raise NotFinite("NaN or infinity", where=where, expected="finite weights and spectra")
    if bool((s_o < 0).any() or (s_v < 0).any()):
        raise BadInput("negative singular values", where=where, expected=">= 0", got=float(min(s_o.min(), s_v.min())))


def _need_dimension(d: int, where: str) -> None:
    # In one dimension a rotation changes nothing and the variance formula divides by zero.
    whole_number(d, "too few dimensions for a random rotation", least=2, where=where)


def _as_float(x: float | Tensor) -> Tensor:
    """A Python number as float64, a tensor of real numbers in at least float32."""
    if isinstance(x, Real) and not isinstance(x, bool):
        return torch.tensor(float(x), dtype=torch.float64)
    if isinstance(x, Tensor) and not x.is_floating_point() and not x.is_complex():
        return x.to(torch.float64)
    return real_tensor(x, "a null", "numbers")


def check_seed(seed: int) -> None:
    """Raise UsageError for what is no seed.

    >>> check_seed(0)
    """
    whole_number(seed, "a seed", least=0)
