"""A pytest plugin for a busy machine: Dask's tests have no time limit of their own.

It acts as it is imported, before Dask's decorators make tests: to them it looks as if
somebody were debugging, for whom they wait an hour. pytest-timeout's limit is left.
"""

import distributed.utils_test

distributed.utils_test.is_debugging = lambda: True
