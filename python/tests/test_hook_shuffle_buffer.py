"""The buffer of a shuffle from where it is said to the specs of the tasks, without a
cluster. With one: test_shuffle_buffers.py."""

import os
import pickle
import subprocess
import sys
import warnings

import dask
import pandas
import pytest
from dask.dataframe import from_pandas
from dask.dataframe.dask_expr import _collection, _groupby, _merge, _shuffle
from distributed.shuffle._core import P2PBarrierTask

from spillway import stats
from spillway.dask import disable, enable, hook_shuffle_buffer, shuffle_buffers

CONFIG, ANNOTATION = shuffle_buffers.CONFIG_KEY, shuffle_buffers.ANNOTATION


@pytest.fixture(autouse=True)
def p2p():
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        yield


def annotated(buffer):
    return dask.annotate(**{ANNOTATION: buffer})


def frame(npartitions=4):
    values = pandas.DataFrame({"k": range(20), "v": [3, 1, 4, 1, 5] * 4, "w": 1.5})
    return from_pandas(values, npartitions=npartitions)


def specs(collection):
    """Of all P2P shuffles in its graph."""
    graph = collection.expr.optimize().__dask_graph__()
    return [task.spec for task in graph.values() if isinstance(task, P2PBarrierTask)]


def chosen(collection):
    return [shuffle_buffers.chosen_for(spec) for spec in specs(collection)]


def other(df):
    return df.rename(columns={"v": "x"})


def unordered(df):
    return df.clear_divisions()


AT_THE_CALL = {
    "shuffle": lambda df: df.shuffle("k"),
    "shuffle, named": lambda df: df.shuffle("k", shuffle_method="p2p"),
    "shuffle on an expression": lambda df: df.shuffle(df[["k"]]),
    "shuffle, then columns": lambda df: df.shuffle("k")[["v"]],
    "shuffle, then a filter": lambda df: df.shuffle("k").query("v > 2"),
    "shuffle, then a partition": lambda df: df.shuffle("k").partitions[1],
    "set_index": lambda df: df.set_index("v", divisions=[1, 3, 5]),
    "sort_values": lambda df: df.sort_values("v"),
    "merge": lambda df: df.merge(other(df), on="k"),
    "merge, named": lambda df: df.merge(other(df), on="k", shuffle_method="p2p"),
    "merge, then columns": lambda df: df.merge(other(df), on="k")[["v", "x"]],
    "merge of a partitioned side": lambda df: df.shuffle("k").merge(df, on="k"),
    "merge, broadcast": lambda df: other(df).merge(
        df.repartition(npartitions=2), how="left", on="k", broadcast=True
    ),
    "join": lambda df: unordered(df).join(unordered(df), rsuffix="_r"),
    "drop_duplicates": lambda df: df.drop_duplicates(subset=["k"]),
    "unique": lambda df: df.k.unique(),
    "apply": lambda df: df.groupby("k").apply(len, meta=("x", "i8")),
    "transform": lambda df: df.groupby("k").v.transform(abs, meta=("v", "i8")),
    "shift": lambda df: df.groupby("k").v.shift(meta=("v", "f8")),
    "median": lambda df: df.groupby("k").v.median(),
    "nunique": lambda df: df.groupby("k").v.nunique(split_out=2),
    "sum": lambda df: df.groupby("k").sum(split_out=2),
    "agg": lambda df: df.groupby("k").agg("sum", split_out=2),
    "var": lambda df: df.groupby("k").var(split_out=2),
}

WHEN_OPTIMISED = {
    "value_counts": lambda df: df.k.value_counts(split_out=2),
    "joins": lambda df: unordered(df[["k"]]).join(
        [unordered(df[["v"]]), unordered(df[["w"]])], how="outer"
    ),
}


@pytest.mark.parametrize("made", AT_THE_CALL)
def test_what_is_in_force_at_the_call_goes_along(made):
    enable()
    df = frame()
    with annotated("memory"):
        collection = AT_THE_CALL[made](df)
    with dask.config.set({CONFIG: "disk"}):
        buffers = chosen(collection)
    assert set(buffers) == {"memory"}
    shuffles = 2 if made in ("merge", "merge, named", "merge, then columns") else None
    assert shuffles in (None, len(buffers))


@pytest.mark.parametrize("made", [*AT_THE_CALL, *WHEN_OPTIMISED])
def test_the_same_is_shuffled_as_without_a_choice(made):
    """As many shuffles of the same rows: nothing else of the graph depends on it."""
    make = {**AT_THE_CALL, **WHEN_OPTIMISED}[made]
    enable()
    df = frame()
    plain = make(df)
    with annotated("disk"):
        ours = make(df)
        assert len(ours.expr.optimize().__dask_graph__()) == len(
            plain.expr.optimize().__dask_graph__()
        )
    described = [
        [(spec.npartitions, spec.column, spec.parts_out, *spec.meta) for spec in of]
        for of in (specs(ours), specs(plain))
    ]
    assert sorted(described[0]) == sorted(described[1]) != []
    assert ours.divisions == plain.divisions


@pytest.mark.parametrize("made", [*AT_THE_CALL, *WHEN_OPTIMISED])
def test_where_nothing_was_said_counts_what_is_when_optimised(made):
    enable()
    collection = {**AT_THE_CALL, **WHEN_OPTIMISED}[made](frame())
    assert set(chosen(collection)) == {"auto"}
    with dask.config.set({CONFIG: "disk"}):
        optimised = collection.optimize()
        assert set(chosen(collection)) == {"disk"}
    assert set(chosen(optimised)) == {"disk"}


@pytest.mark.parametrize("made", [*AT_THE_CALL, *WHEN_OPTIMISED])
def test_with_nothing_said_all_is_as_in_stock_dask(made):
    make = {**AT_THE_CALL, **WHEN_OPTIMISED}[made]
    df = frame()
    stock = make(df)
    optimised = stock.expr.optimize()
    pickled = pickle.dumps(optimised)
    enable()
    ours = make(df)
    assert ours._name == stock._name
    assert ours.expr.optimize()._name == optimised._name
    assert pickle.dumps(ours.expr.optimize()) == pickled
    assert all(
        vars(spec).keys() == set(spec.__dataclass_fields__) for spec in specs(ours)
    )


def test_an_annotation_wins_over_the_configuration():
    enable()
    df = frame()
    with dask.config.set({CONFIG: "disk"}):
        assert chosen(df.shuffle("k")) == ["disk"]
        with annotated("memory"):
            inside = df.shuffle("k")
            with annotated("auto"):
                innermost = df.shuffle("k")
        assert chosen(inside) == ["memory"]
        assert chosen(innermost) == ["auto"]


def test_shuffles_of_one_frame_are_told_apart_by_the_buffer():
    enable()
    df = frame()
    made = {None: df.shuffle("k")}
    for buffer in shuffle_buffers.BUFFERS:
        with annotated(buffer):
            made[buffer] = df.shuffle("k")
            assert df.shuffle("k")._name == made[buffer]._name
    names = {buffer: made[buffer].optimize()._name for buffer in made}
    assert names["auto"] == names[None]
    assert len(set(names.values())) == 3
    both = _collection.concat([made["memory"], made["disk"]])
    assert sorted(chosen(both)) == ["disk", "memory"]
    assert len({spec.id for spec in specs(both)}) == 2


def test_a_merge_leaves_the_shuffles_that_it_finds():
    enable()
    df = frame()
    with annotated("disk"):
        left = df.shuffle("k")
    with annotated("memory"):
        merged = left.merge(df, on="k", shuffle_method="p2p")
    assert sorted(chosen(merged)) == ["disk", "memory", "memory"]


def test_other_methods_are_left_alone():
    df = frame()
    for method in ("tasks", "disk"):
        stock = df.shuffle("k", shuffle_method=method)
        enable()
        with annotated("memory"):
            assert df.shuffle("k", shuffle_method=method)._name == stock._name
        disable()


@pytest.mark.parametrize("word", ["dsk", "", "Disk", 7, len, ["memory"]], ids=str)
@pytest.mark.parametrize("made", AT_THE_CALL)
def test_an_unknown_word_is_refused_by_the_call(made, word):
    enable()
    df = frame()
    for said in (annotated(word), dask.config.set({CONFIG: word})):
        with said, pytest.raises(ValueError, match="'memory', 'disk', 'auto'") as error:
            AT_THE_CALL[made](df)
        assert repr(word) in str(error.value)


@pytest.mark.parametrize("made", WHEN_OPTIMISED)
def test_an_unknown_word_is_refused_when_optimised(made):
    enable()
    collection = WHEN_OPTIMISED[made](frame())
    with annotated("dsk"), pytest.raises(ValueError, match="'memory', 'disk', 'auto'"):
        chosen(collection)


def test_our_annotation_gives_no_warning_and_others_still_do(monkeypatch):
    monkeypatch.setattr(_collection, "_WARN_ANNOTATIONS", True)
    enable()
    df = frame()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with annotated("disk"):
            df.shuffle("k")
    with annotated("disk"), dask.annotate(priority=7), pytest.warns() as given:
        df.shuffle("k")
    (warning,) = given
    assert "{'priority': 7} detected" in str(warning.message)


def test_a_pickle_needs_nothing_of_ours():
    enable()
    with annotated("disk"):
        made = frame().shuffle("k"), frame().merge(frame(), on="k")
    for collection in made:
        assert b"spillway" not in pickle.dumps(collection.expr)
        expr = collection.expr.optimize()
        pickled = pickle.dumps(expr)
        assert b"spillway.dask" not in pickled
        graph = expr.__dask_graph__()
        del expr
        disable()
        read = pickle.loads(pickled).__dask_graph__()
        assert read.keys() == graph.keys()
        barriers = [task for task in read.values() if isinstance(task, P2PBarrierTask)]
        assert {shuffle_buffers.chosen_for(task.spec) for task in barriers} == {"disk"}
        enable()


def test_a_dask_that_names_both_buffers_alike_does_not_fit(monkeypatch):
    assert hook_shuffle_buffer.check() is None
    monkeypatch.setattr(shuffle_buffers.MethodWithBuffer, "__repr__", str.__repr__)
    assert "tell texts apart" in hook_shuffle_buffer.check()


def test_remove_leaves_all_as_it_was():
    owners = (
        _collection,
        _groupby,
        _shuffle.Shuffle,
        _merge.Merge,
        _shuffle.P2PShuffle,
        _merge.HashJoinP2P,
    )
    before = [dict(vars(owner)) for owner in owners]
    hook_shuffle_buffer.install()
    assert before != [dict(vars(owner)) for owner in owners]
    hook_shuffle_buffer.remove()
    assert before == [dict(vars(owner)) for owner in owners]


def test_what_somebody_put_before_ours_stays(monkeypatch):
    stock = _shuffle.Shuffle._lower
    hook_shuffle_buffer.install()
    ours = _shuffle.Shuffle._lower

    def theirs(self):
        return ours(self)

    monkeypatch.setattr(_shuffle.Shuffle, "_lower", theirs)
    hook_shuffle_buffer.remove()
    assert _shuffle.Shuffle._lower is theirs
    _shuffle.Shuffle._lower = stock


def test_switched_off_by_its_name(monkeypatch):
    monkeypatch.setenv("SPILLWAY_DISABLE", "shuffle")
    monkeypatch.setattr(_collection, "_WARN_ANNOTATIONS", False)
    enable()
    with annotated("disk"):
        assert chosen(frame().shuffle("k")) == ["auto"]
    off = {"on": False, "why_off": "SPILLWAY_DISABLE=shuffle"}
    assert stats()["parts"]["shuffle"] == off


BEFORE_DATAFRAMES = """
import sys
import spillway.dask
spillway.dask.enable()
assert "dask.dataframe" not in sys.modules and "pandas" not in sys.modules
{change}
import pandas
import dask
from dask.dataframe import from_pandas
dask.config.set({{"dataframe.shuffle.method": "p2p"}})
from spillway.dask import shuffle_buffers
df = from_pandas(pandas.DataFrame({{"k": range(4)}}), npartitions=2)
tasks = df.shuffle("k").optimize().__dask_graph__().values()
for task in tasks:
    if hasattr(task, "spec"):
        print(shuffle_buffers.chosen_for(task.spec))
print(spillway.stats()["parts"]["shuffle"]["why_off"])
"""


def shown_before_dataframes(change):
    ran = subprocess.run(
        [sys.executable, "-c", BEFORE_DATAFRAMES.format(change=change)],
        env={**os.environ, "DASK_SPILLWAY__SHUFFLE__BUFFER": "disk"},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.splitlines(), ran.stderr


def test_enable_does_not_import_dataframes_and_takes_them_when_they_come():
    shown, errors = shown_before_dataframes("")
    assert shown == ["disk", "None"]
    assert "shuffle_buffer" not in errors


DO_NOT_FIT = {
    "dask.base:gone is missing": (
        "from spillway.dask import manifest\n"
        "manifest.HOOKS['shuffle_buffer'] += (manifest.Relies('dask.base:gone'),)"
    ),
    "ZeroDivisionError: ": (
        "from spillway.dask import hook_shuffle_buffer\n"
        "hook_shuffle_buffer._around_reduce = lambda reduce: 1 / 0"
    ),
}


@pytest.mark.parametrize("reason", DO_NOT_FIT)
def test_dataframes_that_do_not_fit_stay_stock_with_a_warning(reason):
    (buffer, why), errors = shown_before_dataframes(DO_NOT_FIT[reason])
    assert buffer == "auto"
    assert why.startswith(reason)
    assert errors.count("hook shuffle_buffer does not fit") == 1


def test_disabled_before_dataframes_come():
    shown, errors = shown_before_dataframes("spillway.dask.disable()")
    assert shown[0] == "auto"
    assert "shuffle_buffer" not in errors
