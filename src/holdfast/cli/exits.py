"""How `holdfast` ends. 124 to 127 and 128+n are what timeout(1) and the shells made them; 75 is EX_TEMPFAIL."""

OK = 0
NO = 1  # `release`: nobody holds that token; or the answer to "really?" was no
NOT_ACQUIRED = 75  # `run`: not to be had, or not in time; -E overrides it
LOST = 76  # `run`: the lock was lost, and the command was ended for it
TROUBLE = 125  # holdfast itself failed: a wrong option, a store that cannot be reached
NOT_EXECUTABLE = 126
NOT_FOUND = 127
SIGNALLED = 128  # + the number of the signal that ended the command, or holdfast while it waited
