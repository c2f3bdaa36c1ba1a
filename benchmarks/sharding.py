"""How evenly are durations dealt out to shards, beside longest-first?

Generates as many durations as tt-xla's nightly publishes, of the same shape, prints what was generated, and deals them
out to 8 and 16 shards. The bound is one that no split can be below: the fair share or the longest duration.

    figure: makespan_over_bound_16 = (longest shard / bound - 1) * 100 percent
"""

from __future__ import annotations

import time
from statistics import NormalDist, median

from harness.plan.sharding import longest_first, lower_bound, makespan, split

# Published by tenstorrent/tt-xla: the durations of its nightly's model tests.
COUNT = 1_569
MEDIAN_SECONDS = 91.0
P90_SECONDS = 342.0
MAX_SECONDS = 9_036.0
SUM_SECONDS = 72.6 * 3600
SHARDS = (8, 16)


def durations() -> dict[str, int]:
    """Milliseconds by name: quantiles of a distribution that has the published median, p90, maximum and sum.

    Lognormal through median and p90; above p90 a power of the rank, which begins at p90 and ends at the maximum, whose
    exponent is what gives the published sum. Nothing is random.
    """
    normal = NormalDist()
    ranks = [(number + 0.5) / COUNT for number in range(COUNT)]
    spread = (P90_SECONDS / MEDIAN_SECONDS) ** (1 / normal.inv_cdf(0.9))
    body = [MEDIAN_SECONDS * spread ** normal.inv_cdf(rank) for rank in ranks if rank < 0.9]
    count = COUNT - len(body)

    def tail(power: float) -> list[float]:
        return [P90_SECONDS + (MAX_SECONDS - P90_SECONDS) * (n / (count - 1)) ** power for n in range(count)]

    low, high = 1.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(body) + sum(tail(middle)) > SUM_SECONDS else (low, middle)
    seconds = [*body, *tail(high)]
    return {f"{place:04}": round(value * 1000) for place, value in enumerate(seconds)}


def main() -> None:
    """Print what was generated and the figures."""
    weights = durations()
    values = sorted(weights.values())
    p90 = values[int(0.9 * len(values))]
    print(
        f"{len(values)} durations: median {median(values) / 1000:.1f} s, p90 {p90 / 1000:.1f} s, "
        f"max {values[-1] / 1000:.0f} s, sum {sum(values) / 3.6e6:.2f} h"
    )
    for count in SHARDS:
        started = time.perf_counter()
        ours = makespan(split(weights, count), weights)
        elapsed = time.perf_counter() - started
        baseline, bound = makespan(longest_first(weights, count), weights), lower_bound(weights, count)
        print(
            f"{count} shards: bound {bound / 1000:.1f} s, longest-first {baseline / 1000:.3f} s, "
            f"ours {ours / 1000:.3f} s"
        )
        print(f"figure: makespan_{count} {ours / 1000:.3f} s")
        print(f"figure: makespan_over_bound_{count} {100 * (ours / bound - 1):.4f} percent")
        print(f"figure: longest_first_over_bound_{count} {100 * (baseline / bound - 1):.4f} percent")
        print(f"figure: sharding_milliseconds_{count} {1000 * elapsed:.0f} ms")


if __name__ == "__main__":
    main()
