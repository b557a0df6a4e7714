# SPDX-License-Identifier: Apache-2.0
"""Runs a command, sends it a signal once it has written something to stdout, and exits with its status.

Usage: interrupt.py SIGNAL_NUMBER COMMAND...      stdout is swallowed, stderr passes through
"""
import signal
import subprocess
import sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # not inherited as ignored
child = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE, restore_signals=True,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
child.stdout.read(8)
child.send_signal(int(sys.argv[1]))
child.stdout.read()
status = child.wait(timeout=50)
sys.exit(status if status >= 0 else 128 - status)
