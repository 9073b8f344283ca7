"""A worker has spilled most of 40 values, and another one asks for all of them: how
long that takes, and what it costs the sender, which is as short of memory as before."""

import argparse
import json
import time

import counted_values
from spilling_cluster import (
    assert_used,
    cluster,
    forget_peak,
    memory_bytes,
    processes,
    wait_until_written,
    written_bytes,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plane", choices=["stock", "spillway"], required=True)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--mib", type=int, default=64)
    arguments = parser.parse_args()
    size = arguments.mib << 20
    with cluster(arguments.plane, n_workers=2, memory_limit="1GiB") as client:
        from distributed import wait

        (sender, process), (receiver, _) = processes(client).items()
        values = client.map(
            counted_values.make,
            range(arguments.count),
            size=size,
            workers=[sender],
            pure=False,
        )
        wait(values)
        wait_until_written([process])
        assert written_bytes(process) > arguments.count * size / 2, "it has not spilled"
        unpickled = client.run(counted_values.count, workers=[sender])[sender]
        written, resident = written_bytes(process), forget_peak(process)
        start = time.perf_counter()
        sums = client.gather(
            client.map(counted_values.look, values, workers=[receiver], pure=False)
        )
        seconds = time.perf_counter() - start
        peak = memory_bytes(process, "VmHWM")
        written = written_bytes(process) - written
        unpickled = (
            client.run(counted_values.count, workers=[sender])[sender] - unpickled
        )
        assert_used(client, arguments.plane)
    for number, found in enumerate(sums):
        assert found == counted_values.look(counted_values.make(number, size))
    print(
        json.dumps(
            {
                "seconds": seconds,
                "written_again_bytes": written,
                "unpickled": unpickled,
                "growth_bytes": peak - resident,
            }
        )
    )


if __name__ == "__main__":
    main()
