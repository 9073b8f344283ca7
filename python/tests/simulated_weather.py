"""What goes wrong in a simulation, and how often."""

from random import Random


class Weather:
    """Chances, by a seed. Fair weather, unless `by_chance` made it."""

    lost = answer_lost = late = 0.0
    """Calls that fail: before they arrive, after that, and that arrive all the same,
    long after."""
    forgotten = 0.0
    """Shards that are acknowledged, and are not there."""
    slow: str | None = None
    """A worker all of whose calls take a hundred times as long."""
    disk_bytes = 0
    """What a worker may have on disk; 0: anything."""
    write_fails = read_fails = 0.0
    fails_behind = 0.0
    """Tasks that fail when they have read a partition."""

    @classmethod
    def by_chance(cls, random: Random) -> "Weather":
        """Half of all have a network that is as good as new, and so on."""
        weather = cls()
        if random.random() < 0.5:
            weather.lost = random.choice([0, 0.05, 0.3])
            weather.answer_lost = random.choice([0, 0.05, 0.3])
            weather.late = random.choice([0, 0.05, 0.3])
        if random.random() < 0.25:
            weather.slow = f"tcp://{random.randint(1, 3)}"
        if random.random() < 0.2:
            weather.disk_bytes = random.randint(1, 60_000)
        if random.random() < 0.15:
            weather.write_fails = random.choice([0.02, 0.3])
        if random.random() < 0.1:
            weather.read_fails = random.choice([0.02, 0.3])
        if random.random() < 0.1:
            weather.forgotten = random.choice([0.02, 0.3])
        if random.random() < 0.3:
            weather.fails_behind = random.choice([0.1, 0.5])
        return weather

    @property
    def may_fill_disk(self) -> bool:
        """Whether a shuffle may fail because its disk is full."""
        return bool(self.disk_bytes or self.write_fails)

    @property
    def may_fail(self) -> bool:
        """Whether a shuffle may fail at all."""
        return bool(self.may_fill_disk or self.read_fails or self.forgotten)
