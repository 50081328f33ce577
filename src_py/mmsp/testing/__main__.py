"""`python -m mmsp.testing`; see `command.py`."""

import contextlib

from .command import main

with contextlib.suppress(KeyboardInterrupt):
    main()
