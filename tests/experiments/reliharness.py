"""The paper's protocol in plain Python, to be measured beside ours on the same machine.

ReliHarness as its article describes it: time stamps as heartbeats, `Thread.is_alive()`, one scan each period, one line
of log for each event. Prints one JSON object. Arguments: tasks of each kind, tau, scan period (seconds).
"""

import json
import sys
import tempfile
import threading
import time


class Task:
    def __init__(self, kind):
        self.kind, self.beat, self.progress = kind, time.monotonic(), 0
        self.state, self.turned, self.found = "RUNNING", None, None
        self.thread = threading.Thread(target=self.work, daemon=True)

    def work(self):
        until = time.monotonic() + (id(self) // 64 % 20) / 10
        while time.monotonic() < until:
            self.beat = time.monotonic()
            time.sleep(0.02)
        self.turned = time.monotonic()
        if self.kind == "deadlocked":
            LOCK.acquire()
        elif self.kind == "normal":
            while not STOP.wait(0.5):
                self.beat = time.monotonic()


def scan(tasks, tau, log):
    now = time.monotonic()
    for task in tasks:
        if task.state != "RUNNING":
            continue
        if not task.thread.is_alive():
            task.state = "DEAD"
        elif now - task.beat >= tau:
            task.state = "ZOMBIE"
        else:
            continue
        task.found = now
        log.write(f"{now} {task.state} {task.beat}\n")
        log.flush()


def each_ns(count, action):
    began = time.perf_counter_ns()
    for _ in range(count):
        action()
    return (time.perf_counter_ns() - began) / count


third, tau, period = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
threading.stack_size(64 * 1024)
LOCK, STOP = threading.Lock(), threading.Event()
LOCK.acquire()
tasks = [Task(kind) for _ in range(third) for kind in ("deadlocked", "crashed", "normal")]
for task in tasks:
    task.thread.start()
with tempfile.TemporaryFile("w") as log:
    end = time.monotonic() + 2 + tau + 2 * period
    while time.monotonic() < end:
        time.sleep(period)
        scan(tasks, tau, log)
    late = {"deadlocked": [], "crashed": []}
    missed = false_alarms = 0
    for task in tasks:
        expected = {"deadlocked": "ZOMBIE", "crashed": "DEAD", "normal": "RUNNING"}[task.kind]
        if task.kind == "normal":
            false_alarms += task.state != expected
        elif task.state == expected:
            late[task.kind].append((task.found - task.turned) * 1000)
        else:
            missed += 1

    def stamp():
        tasks[0].beat = time.monotonic()

    def line():
        log.write(f"{time.monotonic()} RUNNING {tasks[0].beat}\n")
        log.flush()

    beat_ns, log_ns = each_ns(200_000, stamp), each_ns(20_000, line)
    many = (tasks * (10_000 // len(tasks) + 1))[:10_000]
    for task in many:
        task.state = "RUNNING"
    began = time.perf_counter_ns()
    now = time.monotonic()
    stale = sum(1 for task in many if not task.thread.is_alive() or now - task.beat >= 1e9)
    scan_us = (time.perf_counter_ns() - began) / 1000
STOP.set()
LOCK.release()
ranks = {kind: sorted(values) for kind, values in late.items()}
print(json.dumps({
    "tasks": len(tasks), "missed": missed, "false_alarms": false_alarms, "heartbeat_ns": beat_ns, "log_ns": log_ns,
    "scan_10000_us": scan_us, "stale": stale,
    "crash_detect_ms_p50": ranks["crashed"][len(ranks["crashed"]) // 2],
    "crash_detect_ms_max": ranks["crashed"][-1], "stuck_detect_ms_max": ranks["deadlocked"][-1],
}))
