"""Signals end what they are to end, whatever the main thread is within."""

from __future__ import annotations

import subprocess
import sys

WITHIN_A_LOCK = """
import os, signal, threading
from service.signals import ending_on_signals

lock = threading.Lock()
stop = threading.Event()

def end():
    with lock:
        stop.set()

with ending_on_signals(end):
    with lock:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    stop.wait()
print("ended")
"""


def test_a_signal_ends_a_process_that_has_the_lock_by_which_it_is_ended() -> None:
    """An event that is waited for has such a lock while the wait begins."""
    command = [sys.executable, "-c", WITHIN_A_LOCK]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert said == "ended\n"


REPLACED = """
import os, signal, threading
from service.signals import ending_on_signals

stop = threading.Event()
with ending_on_signals(stop.set):
    os.kill(os.getpid(), signal.SIGTERM)
    stop.wait()
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, threading.active_count(), flush=True)
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_behind_it_signals_do_what_they_did_before() -> None:
    ended = subprocess.run([sys.executable, "-c", REPLACED], check=False, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (-15, "True 1\n")
