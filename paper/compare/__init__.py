"""`compare`: ipate's two engines beside what their users would otherwise run, on the same rows and budgets.

`worlds` has the data and the budgets, `methods` every method by name, `kept` the results, `runs` the worker processes,
and `page` the tables, with `verdicts`, `sentences` and `figure`. `descent` and `dpsgd` are rivals that ipate lacks.
All noise is seeded: nothing here is a private release, and every data set is a benchmark.
"""
