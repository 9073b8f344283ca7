"""What it costs to encode and decode values, by Dask and by us, without a network.

python benchmarks/value_cost.py
"""

import time

import numpy
import pandas
import pyarrow
from distributed import protocol
from distributed.protocol import to_serialize

from spillway.dask import outgoing_message, value_encoder
from spillway.dask.decode import loads

ROUNDS = 7
OPTIONS = {
    "serializers": None,
    "on_error": "message",
    "context": {"compression": None},
    "frame_split_size": 1 << 40,
}

VALUES = {
    "an integer": lambda: 5,
    "a small dict": lambda: {"a": 1, "b": [1, 2, 3]},
    "a function": lambda: lambda x: x,
    "an array of 8 MB": lambda: numpy.zeros(1 << 20),
    "a strided array of 8 MB": lambda: numpy.zeros((1000, 2000))[:, ::2],
    "10 arrays of 80 kB": lambda: [numpy.zeros(10_000) for _ in range(10)],
    "6,000 tiny arrays": lambda: [numpy.full(i % 4, i) for i in range(6000)],
    "100,000 integers": lambda: list(range(100_000)),
    "100 bytes of 100 kB": lambda: [bytes(100_000) for _ in range(100)],
    "50 MB of bytes in a list": lambda: [bytes(50_000_000)],
    "a frame of 2 rows": lambda: pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]}),
    "a frame of 10,000 rows": lambda: pandas.DataFrame(
        {"a": numpy.zeros(10_000), "b": [f"x{i}" for i in range(10_000)]}
    ),
    "an Arrow table of 16 MB": lambda: pyarrow.table({"a": numpy.zeros(2_000_000)}),
}


def milliseconds(function, *arguments):
    """The best of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        function(*arguments)
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def by_dask(message):
    return protocol.dumps(message, **OPTIONS)


def by_us(message):
    return outgoing_message.dumps(message, value_encoder.encode, **OPTIONS)


def received(frames):
    """Frames as a comm gives them; NumPy's memory, as that of Dask's comms is."""
    bodies = (numpy.frombuffer(bytearray(frame), "u1").data for frame in frames[1:])
    return [bytes(frames[0]), *bodies]


def main():
    print(f"{'ms':26} {'encoding: Dask':>15} {'ours':>9} {'decoding: Dask':>15} ours")
    for name, make in VALUES.items():
        message = to_serialize(make())
        theirs, ours = received(by_dask(message)), received(by_us(message))
        print(
            f"{name:26} {milliseconds(by_dask, message):15.3f} "
            f"{milliseconds(by_us, message):9.3f} "
            f"{milliseconds(protocol.loads, theirs):15.3f} "
            f"{milliseconds(loads, ours):.3f}"
        )


if __name__ == "__main__":
    main()
