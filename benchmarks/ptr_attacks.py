"""Attack graded propose-test-release: its envelope, its ladder, and the whole release of small ensembles.

    python benchmarks/ptr_attacks.py [--attacks 20000] [--pairs 1000000] [--seed 0] [--part envelope]

*Envelope*: the exact Rényi divergence of check and label, over g_r, for random votes and for votes that climb towards
the bound; unit moves, real weights, several votes at once. *Ladder*: g_r(n′)/g_{r+1}(n) over neighbours. *Release*:
the exact hockey-stick divergence over δ for every data set and every neighbour of small ensembles; then designs that
are broken on purpose, which must show more than δ. Nothing sound may print a ratio above 1; exits with 1 otherwise.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from ptr_attack import climb, ladder, make, random_setting, ratios
from ptr_cases import BROKEN, CASES, worst_by_level

KINDS = ("unit", "weighted", "upsampled")


def envelope(attacks: int, seed: int) -> float:
    """Print one row per kind; return the worst ratio."""
    worst = 0.0
    for kind in KINDS:
        rng = np.random.default_rng((seed, KINDS.index(kind)))
        start, tried, random, climbed = time.perf_counter(), 0, 0.0, 0.0
        while tried < attacks / len(KINDS):
            setting, radius = random_setting(rng, kind), int(rng.choice([0, 0, 1, 2, 5, 10]))
            random = max(random, float(ratios(setting, radius, make(rng, setting, radius, 100, kind)).max()))
            climbed = max(climbed, float(climb(rng, setting, radius, 20, kind, 15).max()))
            tried += 100 + 20 * 16
        worst = max(worst, random, climbed)
        seconds = time.perf_counter() - start
        print(
            f"envelope {kind:10} {tried:8} attacks  random {random:.9f}  climbing {climbed:.9f}  {seconds:5.0f} s",
            flush=True,
        )
    return worst


def ladders(pairs: int, seed: int) -> float:
    """Print one row per kind; return the worst ratio."""
    worst = 0.0
    for kind in KINDS:
        rng = np.random.default_rng((seed, 10 + KINDS.index(kind)))
        start, tried, found = time.perf_counter(), 0, 0.0
        while tried < pairs / len(KINDS):
            size, ratio = ladder(rng, random_setting(rng, kind), 4000, [0, int(rng.integers(1, 12))], kind)
            tried, found = tried + size, max(found, ratio)
        worst = max(worst, found)
        print(
            f"ladder   {kind:10} {tried:8} pairs    worst {found:.12f}  {time.perf_counter() - start:5.0f} s",
            flush=True,
        )
    return worst


def releases() -> tuple[float, float]:
    """Print one row per case; return the worst ratio of the sound ones and the least of the broken ones."""
    worst, least = 0.0, np.inf
    for name, case in CASES.items():
        start = time.perf_counter()
        found, sets = worst_by_level(*case())
        ratio = max(found.values())
        worst = max(worst, ratio)
        levels = {level for _, level in found}
        print(
            f"release  {name:44} {sets:6} data sets on {len(levels):3} levels  worst {ratio:.6f} of δ"
            f"  {time.perf_counter() - start:5.0f} s",
            flush=True,
        )
    for name, case in BROKEN.items():
        ratio = max(worst_by_level(*case())[0].values())
        least = min(least, ratio)
        print(f"broken   {name:44} {ratio:.4f} of δ", flush=True)
    return worst, least


def main() -> int:
    """Run all attacks; 0 if nothing sound was above 1 and everything broken was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attacks", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", choices=["release", "envelope", "ladder"], action="append", help="all unless said")
    options = parser.parse_args()
    parts = options.part or ["release", "envelope", "ladder"]
    worst, least = releases() if "release" in parts else (0.0, np.inf)
    if "envelope" in parts:
        worst = max(worst, envelope(options.attacks, options.seed))
    if "ladder" in parts:
        worst = max(worst, ladders(options.pairs, options.seed))
    print(f"worst of all that is sound: {worst:.12f}; least of all that is broken: {least:.4f}")
    return 0 if worst <= 1 < least else 1


if __name__ == "__main__":
    sys.exit(main())
