"""Options shared by commands, each group one flattened dataclass."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter, Token

from headway.errors import UsageError

if TYPE_CHECKING:
    import torch

    from headway.model.weights import Weights

DTYPES = ("float32", "float64", "bfloat16")


def _path(_: object, tokens: Sequence[Token]) -> Path:
    """A path as typed. Path("") would be the current folder, which is not what an empty variable of a script means."""
    (token,) = tokens
    if not token.value:
        raise UsageError(token.keyword or "path", expected="a path", got="nothing")
    return Path(token.value)


def _paths(_: object, tokens: Sequence[Token]) -> list[Path]:
    return [_path(Path, (token,)) for token in tokens]


Place = Annotated[Path | None, Parameter(name=["-o", "--output"], converter=_path, n_tokens=1)]
Texts = Annotated[list[Path] | None, Parameter(consume_multiple=True, converter=_paths)]

Model = Annotated[str, Parameter(help="A path (archive, RUN, RUN@STEP) or zoo:NAME.")]
Processing = Annotated[
    Literal["raw", "folded"],
    Parameter(help="Weights as stored (raw), or norm gains folded and reads centred (folded)."),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Output:
    """Where the answer goes.

    Parameters
    ----------
    json
        Print JSON: {"schema": "headway/NAME@1", "meta": ..., "rows": [...]}.
    o
        The folder of the results.
    quiet
        No progress and no remarks on stderr.
    """

    json: Annotated[bool, Parameter(show_default=False)] = False
    o: Place = None
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], show_default=False)] = False


@Parameter(name="*")
@dataclass(frozen=True)
class TableOutput(Output):
    """Where one table goes. A file that could not be written is refused here, before any work.

    Parameters
    ----------
    o
        Write the table to this file (.parquet, .csv or .json) instead of showing it.
    """

    o: Place = None

    def __post_init__(self) -> None:
        if self.o is not None:
            from headway.tables.files import check_table_path

            check_table_path(self.o)


@Parameter(name="*")
@dataclass(frozen=True)
class Text:
    """What is read.

    Parameters
    ----------
    text
        Files or folders to read; the held-out text the model carries, or a packaged sample, when left out.
    """

    text: Texts = None


@Parameter(name="*")
@dataclass(frozen=True)
class Study(Text):
    """What is read, and by which weights."""

    processing: Processing = "folded"


@Parameter(name="*")
@dataclass(frozen=True)
class Compute:
    """How it is computed.

    Parameters
    ----------
    device
        Where to compute: cpu, cuda, mps.
    dtype
        Precision: float32, float64 or bfloat16; the file's own when left out.
    seed
        Seed of every random draw.
    """

    device: str = "cpu"
    dtype: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise UsageError("--seed", expected="a whole number from 0 to 2^63 - 1", got=self.seed)

    def open(self, ref: str) -> Weights:
        """The model behind a reference, in the wanted precision and place."""
        from headway.sources.open import load

        device, dtype = self._checked()
        return load(ref).to(dtype=dtype, device=device)

    @contextmanager
    def as_default(self) -> Generator[None]:
        """New tensors in the wanted precision and place: what training follows."""
        import torch

        device, dtype = self._checked()
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype or before)
        try:
            with device:
                yield
        finally:
            torch.set_default_dtype(before)

    def _checked(self) -> tuple[torch.device, torch.dtype | None]:
        import torch

        if self.dtype is not None and self.dtype not in DTYPES:
            raise UsageError("unknown dtype", expected=" or ".join(DTYPES), got=self.dtype)
        try:
            device = torch.device(self.device)
            float(torch.zeros(1, device=device))
        except (RuntimeError, AssertionError, ImportError) as error:
            reason = str(error).splitlines()[0].split(". ")[0][:160]
            raise UsageError(
                "this device cannot be used",
                where=self.device,
                got=reason,
                next_step="Choose cpu, or cuda or mps where the machine has one",
            ) from error
        return device, getattr(torch, self.dtype) if self.dtype else None


@Parameter(name="*")
@dataclass(frozen=True)
class Training(Compute):
    """How a model is trained.

    Parameters
    ----------
    dtype
        Precision: float32, float64 or bfloat16; float32 when left out.
    """
