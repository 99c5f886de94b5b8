"""Use a number of seconds of CPU."""

import sys
import time

while time.process_time() < float(sys.argv[1]):
    pass
