"""The garbage collector of the long-lived workers: it looks less often at what stays anyway.

Most objects here end by their reference count. The default of a look at every 700 new ones walks
the state of workflows again and again: a quarter of a control worker's time in a wide workload.
"""

import gc

__all__ = ["calm"]

NEW_OBJECTS = 20_000
YOUNG_LOOKS = 50
OLD_LOOKS = 100


def calm() -> None:
    """Leave what was imported out of it for ever, and look at the rest less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, YOUNG_LOOKS, OLD_LOOKS)
