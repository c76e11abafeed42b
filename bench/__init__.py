"""Benchmarks: Rabbet beside its peers, measured in one run.

Machines are shared and noisy: ratios between contestants that take turns say more than
times. Every contestant lives in a process of its own, pinned to the same cores; all are
loaded first, their results compared, and then they take turns in rounds. A round gives
one median for each; a ratio is taken round by round, and its median and quartiles are
reported.

`python -m bench.run --help` lists the subjects and options.
"""
