"""Programs that do the same work on different runtimes, and what feeds and checks them: see tests.bench.bench_end_to_end.

The programs are scripts, run as ``python -P FILE BOOTSTRAP WORKLOAD INPUT OUTPUT APPLICATION RECORDS DIRECTORY``, each by
the interpreter that has its runtime. They treat keys and values as bytes and commit every 1000 ms. On standard output they
print ``MARK name records cpu_seconds`` when processing begins (START), maybe in between (HALF), and when everything is
processed and acknowledged by the broker (END).
"""
