#!/usr/bin/env bash
# Set up what is missing, and run a real job on Dask with Spillway under it.
set -euo pipefail
cd "$(dirname "$0")"
. tools/setup.sh

install_missing run
make_venv examples
exec .venv/bin/spillway run examples/python/flights.py "$@"
