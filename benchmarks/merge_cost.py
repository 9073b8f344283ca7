"""What it costs to merge parts that lie side by side, by Dask's function and by ours.

python benchmarks/merge_cost.py
"""

import timeit

from distributed.protocol.utils import merge_memoryviews as by_dask

from spillway.dask.merge_parts import merge_memoryviews as by_us

PART_BYTES = 1000
ROUNDS = 7


def microseconds(merge, parts):
    """The best of some rounds."""
    count = max(10, 20_000 // len(parts))
    rounds = timeit.repeat(lambda: merge(parts), number=count, repeat=ROUNDS)
    return min(rounds) / count * 1e6


def main():
    for count in (2, 16, 1000):
        whole = memoryview(bytearray(PART_BYTES * count))
        starts = range(0, whole.nbytes, PART_BYTES)
        parts = [whole[start : start + PART_BYTES] for start in starts]
        for kind in ("writeable", "read-only"):
            if kind == "read-only":
                parts = [part.toreadonly() for part in parts]
            dask, ours = (microseconds(merge, parts) for merge in (by_dask, by_us))
            print(f"{count:5} parts, {kind}: {dask:8.1f} us by Dask, {ours:.1f} by us")


if __name__ == "__main__":
    main()
