"""Beats and progresses until it is told to go silent: argv[1] is a fifo, each line of it one word."""

import os
import sys

from interlock_worker import Heart

heart = Heart()
done = 0
with open(sys.argv[1]) as words:
    for word in map(str.strip, words):
        if word == "beat":
            heart.beat()
        elif word == "progress":
            done += 1
            heart.progress(done)
        elif word == "status":
            heart.status("speaks Python")
        elif word == "crash":
            os.abort()
