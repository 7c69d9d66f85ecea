"""The other side of tests/interop.rs: the lock of redis-py, which follows the usual SET NX PX pattern.

usage: interop.py URL NAME (hold | try | wait)

hold: takes the lock, says "held", and gives it back when a line comes in; then says "released"
try:  says "held" when the lock is free, else "busy"
wait: waits up to ten seconds for the lock, says "held", gives it back, says "released"
"""

import sys

import redis
from redis.lock import Lock


def say(word):
    print(word, flush=True)


url, name, what = sys.argv[1:]
lock = Lock(redis.Redis.from_url(url), name, timeout=20, sleep=0.02)

if what == "hold":
    assert lock.acquire(blocking=False), "the lock is not free"
    say("held")
    sys.stdin.readline()
    lock.release()
    say("released")
elif what == "try":
    say("held" if lock.acquire(blocking=False) else "busy")
elif what == "wait":
    say("waiting")
    assert lock.acquire(blocking_timeout=10), "not obtained in time"
    say("held")
    lock.release()
    say("released")
else:
    sys.exit(__doc__)
