"""(d) Whole commands: `headway --help`, `inspect` and `report` of the packaged two-layer model, over bare Python.

.venv/bin/python benchmarks/commands.py
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HEADWAY = str(Path(sys.executable).parent / "headway")
BARE = [sys.executable, "-c", "pass"]


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def over_bare(command: list[str], rounds: int = 9) -> float:
    """Median of (command - bare Python), run in turns."""
    seconds(command)
    return statistics.median(seconds(command) - seconds(BARE) for _ in range(rounds))


def verdict(good: bool) -> str:
    return "holds" if good else "FAILS"


def main() -> int:
    held = True
    for words, bound in ((["--help"], 0.3), (["inspect", "zoo:two-layer"], 1.0)):
        took = over_bare([HEADWAY, *words])
        held &= took <= bound
        print(f"headway {' '.join(words):24} {took:5.2f} s over bare Python, bound {bound} s {verdict(took <= bound)}")
    with tempfile.TemporaryDirectory() as folder:
        took = seconds([HEADWAY, "report", "zoo:two-layer", "-o", folder, "--quiet"])
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
    good = took <= 60 and peak <= 2048
    print(f"headway report zoo:two-layer     {took:6.1f} s, peak {peak:,.0f} MB   bound 60 s, 2048 MB {verdict(good)}")
    return 0 if held and good else 1


if __name__ == "__main__":
    sys.exit(main())
