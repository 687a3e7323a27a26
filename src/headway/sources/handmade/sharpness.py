"""How large a score must be: a margin and a number of rivals give the multiplier for a stated leak."""

from __future__ import annotations

import math

from headway.errors import UsageError


def sharpness_for(leak: float, *, gap: float, rivals: int) -> float:
    """The least multiplier T for which a softmax provably leaves at most `leak` to the rivals of its target.

    T = log(rivals (1 - leak) / leak) / gap, dimensionless. Proof: at multiplier T each of the rivals has at most
    e^(-T gap) times the target's weight, so the rivals' share is at most r e^(-T gap) / (1 + r e^(-T gap)), which rises
    with r e^(-T gap) and equals the leak at r e^(-T gap) = leak / (1 - leak). Exact when all rivals stand at the gap;
    log((1 - leak) / leak) / gap is necessary whatever the others do. (exercises.md B1, with one target.)
    Raises UsageError for a leak outside (0, 1/2) or a gap that is not positive.

    >>> T = sharpness_for(0.01, gap=0.5, rivals=9)
    >>> share = 9 * math.exp(-T * 0.5) / (1 + 9 * math.exp(-T * 0.5))
    >>> round(share, 12)
    0.01
    """
    if not 0 < leak < 0.5:
        raise UsageError("leak", expected="a share above 0 and below 1/2", got=leak)
    if not gap > 0:
        raise UsageError(
            "no sharpness makes this head right: a rival scores as high as the target", got=f"gap {gap:.3g}"
        )
    return math.log(max(rivals, 1) * (1 - leak) / leak) / gap
