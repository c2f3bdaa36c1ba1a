"""Does every entry end in the right verdict when the Hub misbehaves, without a storm and within the quota?

huggingface_hub's own client against a Hub on loopback: 320 checkpoints, of which every tenth meets one fault of
`tests/hub/fault_table.py`, each kind once. Prints what became of each.

    figure: hub_faults_right_share = entries with the right verdict and no more requests than they may make / all
    figure: hub_largest_cache = most bytes on disk at any time / quota
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests" / "hub")]

from fault_table import PATIENCE, QUOTA, cases, entry, served  # noqa: E402
from hub_server import HubServer  # noqa: E402

from harness.hub.fetch import Settings, fetch_all  # noqa: E402


def main() -> None:
    faults = len(cases())
    with HubServer() as hub, tempfile.TemporaryDirectory(prefix="zoo-") as place:
        expected = served(hub, sound=9 * faults)
        watch = Watch(Path(place))
        started = time.monotonic()
        settings = Settings(Path(place), PATIENCE, hub.endpoint, quota=QUOTA)
        found = {ended.entry.model_id: ended.fetched for ended in fetch_all(map(entry, expected), settings)}
        seconds = time.monotonic() - started
        watch.stop()
        right = 0
        for name, case in expected.items():
            asked = hub.requests[name]
            good = found[name].verdict == case.verdict and asked <= case.requests
            right += good
            if case.name or not good:
                what = found[name].verdict or "fetched"
                print(f"{'right' if good else 'WRONG'}  {name:28} {what:15} {asked:3} of {case.requests:2} requests")
    print(f"{len(expected)} entries in {seconds:.1f} s")
    for word, number in Counter(one.verdict or "fetched" for one in found.values()).most_common():
        print(f"{number:4} {word}")
    print(f"figure: hub_requests {hub.requests.total()} requests")
    print(f"figure: hub_largest_cache {watch.most / QUOTA:.3f} share of quota")
    print(f"figure: hub_faults_right_share {right / len(expected):.4f} share")


class Watch:
    """The most bytes of files that were seen in a cache."""

    def __init__(self, cache: Path) -> None:
        self.most = 0
        self._cache, self._over = cache, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.02):
            total = 0
            for path in (self._cache / "hub" / "files").glob("*/blobs/*"):
                try:
                    total += path.stat().st_size
                except FileNotFoundError:
                    continue  # it was evicted, or has its final name by now
            self.most = max(self.most, total)


if __name__ == "__main__":
    main()
