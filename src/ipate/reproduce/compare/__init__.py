"""`compare`: ipate's two engines beside what their users would otherwise run, on the same rows and budgets.

`worlds` has the data and the budgets, `methods` every method by name, `runs` the kept results and the pool of worker
processes, and `page` the tables, sentences and the figure. `descent` and `dpsgd` are the rivals that ipate has not.
All noise is seeded: nothing here is a private release, and every data set is a benchmark.
"""
