"""Spillway: a native data plane under an unmodified Dask cluster."""

from spillway.stats import stats

__all__ = ["__version__", "stats"]

__version__ = "0.1.0"
