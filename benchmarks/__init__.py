"""Every figure in the documentation, with the command that measures it again: `make bench`.

Only ratios count: what is compared runs interleaved in one process (or one after the other, in turns), so that whatever
else the machine does slows all of it alike.
"""
