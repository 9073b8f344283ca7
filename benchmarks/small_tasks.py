"""CPU time of client and scheduler for each of 10,000 small tasks on two workers, and
tasks a second."""

import argparse
import json
import time

from two_processes import cpu_seconds, enable

TASKS = 10_000


def increment(x: int) -> int:
    return x + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plane", choices=["stock", "spillway"], required=True)
    arguments = parser.parse_args()
    enable(arguments.plane)
    from distributed import Client, LocalCluster

    # The scheduler runs in this process, so that its CPU time is the client's too.
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        client.gather(client.map(increment, range(-500, 0)))
        if arguments.plane != "stock":
            import spillway

            assert all(
                worker["messages"]["received"] > 0
                for worker in client.run(spillway.stats).values()
            )
        cpu, start = cpu_seconds(), time.perf_counter()
        results = client.gather(client.map(increment, range(TASKS)))
        seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu
        assert results == [x + 1 for x in range(TASKS)]
    print(
        json.dumps(
            {
                "cpu_s_per_task": cpu / TASKS,
                "tasks_per_s": TASKS / seconds,
            }
        )
    )


if __name__ == "__main__":
    main()
