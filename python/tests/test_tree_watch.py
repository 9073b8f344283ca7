"""What processes use, by role."""

from types import SimpleNamespace

from spillway.compare.tree_watch import TreeWatch

FAR = 1 << 30
"""No process has such a pid, so that nobody's peak is read."""


class Process:
    def __init__(self, pid, parent, cpu_s, pss=0):
        self.pid, self._parent, self._cpu_s, self._pss = FAR + pid, parent, cpu_s, pss

    def ppid(self):
        return FAR + self._parent

    def cpu_times(self):
        return SimpleNamespace(user=self._cpu_s, system=0.0)

    def memory_full_info(self):
        return SimpleNamespace(pss=self._pss)


def cpu_s(*processes, **roles):
    watch = TreeWatch()
    watch.sample(processes)
    ran = {FAR + int(name[1:]): set(what.split()) for name, what in roles.items()}
    return watch.cpu_s(FAR + 1, ran)


def test_roles_of_processes_of_their_own():
    found = cpu_s(
        Process(1, 0, 1),
        Process(2, 1, 2),
        Process(3, 1, 4),
        Process(4, 3, 8),
        p2="scheduler",
        p3="nanny",
        p4="worker",
    )
    assert found == {"client": 1, "scheduler": 2, "worker": 12}


def test_the_scripts_process_is_the_client_whatever_runs_in_it():
    found = cpu_s(
        Process(1, 0, 1), Process(2, 1, 2), p1="scheduler nanny worker", p2="worker"
    )
    assert found == {"client": 1, "worker": 2}


def test_what_a_process_starts_has_its_role():
    found = cpu_s(
        Process(1, 0, 1),
        Process(2, 1, 2),
        Process(3, 2, 4),
        Process(4, 3, 8),
        Process(5, 1, 16),
        Process(6, 77, 32),
        p2="worker",
    )
    assert found == {"client": 1 + 16 + 32, "worker": 2 + 4 + 8}


def test_a_pid_that_is_its_own_ancestor_ends():
    assert cpu_s(Process(2, 3, 1), Process(3, 2, 1)) == {"client": 2}


def test_the_last_look_counts():
    watch, process = TreeWatch(), Process(1, 0, 1)
    watch.sample([process])
    process._cpu_s = 3
    watch.sample([process])
    watch.sample([])
    assert watch.cpu_s(FAR + 1, {}) == {"client": 3}


def test_the_peak_of_all_is_of_one_moment():
    watch = TreeWatch()
    watch.sample_memory([Process(1, 0, 0, 100), Process(2, 1, 0, 50)])
    watch.sample_memory([Process(1, 0, 0, 10), Process(2, 1, 0, 120)])
    assert watch.peak_bytes == 150
