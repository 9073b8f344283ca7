"""`spillway compare`: a script on stock Dask and on Spillway in turn, side by side.

comparison.py has the rounds, measured_run.py one run of them, stock_environment.py
where stock runs. Nothing here is imported by a process that is measured.
"""
