"""Linear algebra that knows nothing of transformers: factored matrices, subspaces, and what chance gives.

`low_rank` holds products of thin factors without multiplying them out; `subspace` compares the spaces matrices read
and write; `null` says what a score would be if only the directions were random; `stream` and `largest` pass over all
entries of a product too big to hold.
"""

from __future__ import annotations

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "LowRank": "headway.algebra.low_rank",
        "SVD": "headway.algebra.low_rank",
        "centred": "headway.algebra.stream",
        "diagonal_ranks": "headway.algebra.stream",
        "histogram": "headway.algebra.stream",
        "row_best": "headway.algebra.stream",
        "tiles": "headway.algebra.stream",
        "top_entries": "headway.algebra.largest",
        "column_basis": "headway.algebra.subspace",
        "principal_angles": "headway.algebra.subspace",
        "overlap": "headway.algebra.subspace",
        "expected_overlap": "headway.algebra.subspace",
        "CompositionNull": "headway.algebra.null",
        "anisotropy": "headway.algebra.null",
        "composition_null": "headway.algebra.null",
        "copying_null": "headway.algebra.null",
        "eigenvalue_ratio": "headway.algebra.null",
        "haar_frame": "headway.algebra.null",
    },
)
