"""Spillway under Dask. Importing this changes nothing; `enable()` does."""

from spillway.dask.enable import disable, enable

__all__ = ["disable", "enable"]
