"""What mmsp costs and how fast it stops, measured on this machine.

    python -m benchmarks.quick     the main figures in one table
    python -m benchmarks.phases    how fast every phase of a call stops, and what it leaves behind

The provider runs in a process of its own, so that it does not share the interpreter with what is
measured. Times across processes are CLOCK_MONOTONIC, which both share. README.md says what is where.
"""
