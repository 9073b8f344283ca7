"""Which form an array of pandas' has.

Most forms rely on private parts of pandas' arrays. Each is tried out once in a process,
on a small array: what does not come back as it was is pickled from then on, which every
array can.
"""

import functools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from pandas.core.arrays import string_arrow

from spillway.array_form import ArrayForm
from spillway.numpy_forms import pickled_form
from spillway.pandas_forms import (
    categories_form,
    dates_form,
    interval_form,
    masked_form,
)
from spillway.rejoined import rejoined

logger = logging.getLogger(__name__)

FormOf = Callable[[Any], ArrayForm]


def form_of(array: Any) -> ArrayForm:
    """The form of an extension array.

    Raises
    ------
    Exception
        What pickle raises for categories that cannot be pickled.
    """
    return families().get(type(array), pickled_form)(array)


def bare(form: ArrayForm, array: Any) -> Any:
    """What a form takes the columns of: of arrays that pandas has in blocks, the NumPy
    array in them, which may have two dimensions."""
    if form.in_blocks and not isinstance(array, np.ndarray):
        return array._ndarray
    return array


@functools.cache
def families() -> dict[type, FormOf]:
    """What says which form the arrays of a type have; other types' are pickled."""
    found: dict[type, FormOf] = {}
    failed = set()
    for sample, form in _samples():
        if _holds(sample, form):
            found[type(sample)] = form
        else:
            failed.add(type(sample))
    return {cls: form for cls, form in found.items() if cls not in failed}


def _samples() -> list[tuple[Any, FormOf]]:
    array = pd.array
    samples: list[tuple[Any, FormOf]] = [
        (array([1, None], dtype=name), masked_form)
        for name in (*_masked_names("Int"), *_masked_names("UInt"))
    ]
    samples += [
        (array([0.5, None], dtype="Float32"), masked_form),
        (array([True, None], dtype="boolean"), masked_form),
        (array([1, 3], dtype="M8[ns]"), dates_form),
        (array([1, 3], dtype=pd.DatetimeTZDtype("ns", "UTC")), dates_form),
        (array([1, 3], dtype="m8[ns]"), dates_form),
        (pd.period_range("2000", periods=2, freq="D").array, dates_form),
        (pd.Categorical(["b", None], categories=["b", "a"]), categories_form),
        (pd.arrays.IntervalArray.from_breaks([0, 1, 4]), interval_form),
    ]
    return samples + _arrow_samples()


def _masked_names(kind: str) -> list[str]:
    return [f"{kind}{bits}" for bits in (8, 16, 32, 64)]


def _arrow_samples() -> list[tuple[Any, FormOf]]:
    try:
        import pyarrow as pa
    except ImportError:  # nothing that Arrow has can be in a frame then
        return []
    from spillway.arrow_forms import arrow_form

    dtypes: list[Any] = [pd.ArrowDtype(pa.int16()), pd.StringDtype("pyarrow")]
    if hasattr(string_arrow, "ArrowStringArrayNumpySemantics"):  # before pandas 3
        dtypes.append(pd.StringDtype("pyarrow_numpy"))
    return [(pd.array(["1", None], dtype=dtype), arrow_form) for dtype in dtypes]


def _holds(sample: Any, form_of: FormOf) -> bool:
    """Whether an array comes back from its columns as it was."""
    try:
        form = form_of(sample)
        columns = form.columns(bare(form, sample))
        joined = rejoined(form.types, [(len(sample), columns)])
        again = form.array(len(sample), joined)
        same = again.dtype == sample.dtype and type(again) is type(sample)
        return same and pd.Series(again).equals(pd.Series(sample))
    except Exception:
        # Whatever this pandas does not have: its arrays are pickled.
        logger.warning("%s is pickled by rows", type(sample), exc_info=True)
        return False
