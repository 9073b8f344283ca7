"""What a shuffle raises that Dask has a class for, and says what happened."""

from distributed.shuffle._exceptions import P2POutOfDiskError


class OutOfDisk(P2POutOfDiskError):
    """No directory takes what has no room in memory. Dask passes it on as it is."""

    def __str__(self) -> str:
        return self.args[0] if self.args else super().__str__()


def out_of_disk(error: OSError) -> OSError:
    """What to raise for what the C library said."""
    return OutOfDisk(
        f"A shuffle has no room for its partitions: {error.strerror}. Give the worker "
        "a local directory on a larger disk, other directories (spillway.directories), "
        "more memory, or the cluster more workers"
    )
