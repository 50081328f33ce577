"""What mmsp costs and how fast it stops, measured on this machine.

    python -m benchmarks.quick     the main figures in one table
    python -m benchmarks.phases    how fast every phase of a call stops, and what it leaves behind

    rig.py       providers, clients, ways to stop, statistics: what several measurements need
    figures.py   a figure with its target, the table, the JSON
    floor.py     the least code that could do the same work, to compare with
    decoding.py stopping.py starting.py memory.py requests.py    one measurement each
    scenes.py    how each phase of a call is reached

The provider runs in a process of its own, so that it does not share the interpreter with what is
measured. Times across processes are CLOCK_MONOTONIC, which both share.
"""
