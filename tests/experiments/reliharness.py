"""The paper's protocol in plain Python, to be measured beside ours on the same machine.

ReliHarness as its article describes it: time stamps as heartbeats, `Thread.is_alive()`, one scan each period, one line
of log for each event. Prints one JSON object.

    reliharness.py TASKS TAU PERIOD        the protocol: tasks of each kind, tau and scan period in seconds
    reliharness.py scale THREADS SECONDS   what so many watched threads cost: CPU, memory, log
    reliharness.py slow TASKS TAU PERIOD   deadlocked against slow tasks, told apart by their progress
    reliharness.py tasks COUNT             short tasks from birth to end: events that are logged, cost of each part
"""

import json
import resource
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


def resident_kib():
    # Not getrusage: its high-water mark comes with us from whoever started us.
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 1024


def scale(count, seconds):
    stop = threading.Event()
    tasks = [Task("normal") for _ in range(count)]

    def rest(task):
        while not stop.wait(1):
            task.beat = time.monotonic()

    threads = [threading.Thread(target=rest, args=(task,), daemon=True) for task in tasks]
    before = resident_kib()
    for task, thread in zip(tasks, threads):
        task.thread = thread
        thread.start()
    time.sleep(1)
    with tempfile.TemporaryFile("w") as log:
        # The scans alone, as the supervisor's share; and the whole process, with the beats.
        cpu, whole, end = 0.0, time.process_time(), time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(1)
            began = time.thread_time()
            scan(tasks, 15, log)
            cpu += time.thread_time() - began
        whole = time.process_time() - whole
        logged = log.tell()
    mib = (resident_kib() - before) / 1024
    stop.set()
    return {
        "threads": count, "scan_cpu_percent": cpu / seconds * 100, "cpu_percent": whole / seconds * 100, "rss_mib": mib,
        "log_bytes_per_s": logged / seconds,
    }


def slow(third, tau, period):
    """Stale beats; a moving counter brings a task back, as the article's corrective path does."""
    stop, lock = threading.Event(), threading.Lock()
    lock.acquire()
    tasks, seen = [Task(kind) for kind in ("deadlocked", "slow") for _ in range(third)], {}

    def work(task):
        if task.kind == "deadlocked":
            lock.acquire()
        while not stop.wait(0.5):
            task.progress += 1

    for task in tasks:
        task.thread = threading.Thread(target=work, args=(task,), daemon=True)
        task.thread.start()
    end = time.monotonic() + tau + 3 * period
    while time.monotonic() < end:
        time.sleep(period)
        for task in tasks:
            if time.monotonic() - task.beat >= tau:
                moved = seen.get(task, task.progress) != task.progress
                if task.state == "RUNNING" and not moved:
                    task.state = "ZOMBIE"
                elif moved and task.state == "ZOMBIE":
                    task.state = "RUNNING"
            seen[task] = task.progress
    zombies = sum(task.state == "ZOMBIE" for task in tasks if task.kind == "deadlocked")
    false_alarms = sum(task.state == "ZOMBIE" for task in tasks if task.kind == "slow")
    stop.set()
    lock.release()
    return {"found": zombies, "false_alarms": false_alarms}


def short_tasks(count):
    def body(task):
        sum(range(500))

    def watched(task, log):
        log.write(f"{time.monotonic()} {id(task)} RUNNING\n")
        log.flush()
        task.beat = time.monotonic()
        body(task)
        log.write(f"{time.monotonic()} {id(task)} STOPPED\n")
        log.flush()

    with tempfile.TemporaryFile("w+") as log:
        began = time.perf_counter_ns()
        for _ in range(count):
            watched(Task("normal"), log)
        whole = (time.perf_counter_ns() - began) / count
        began = time.perf_counter_ns()
        for _ in range(count):
            body(Task("normal"))
        bare = (time.perf_counter_ns() - began) / count
        log.seek(0)
        events = sum(1 for _ in log)
    return {"tasks": count, "events": events, "expected": 2 * count, "task_us": bare / 1000, "added_us": (whole - bare) / 1000}


if sys.argv[1] in ("scale", "slow", "tasks"):
    threading.stack_size(64 * 1024)
    STOP = threading.Event()
    numbers = [float(argument) for argument in sys.argv[2:]]
    if sys.argv[1] == "scale":
        print(json.dumps(scale(int(numbers[0]), numbers[1])))
    elif sys.argv[1] == "slow":
        print(json.dumps(slow(int(numbers[0]), numbers[1], numbers[2])))
    else:
        print(json.dumps(short_tasks(int(numbers[0]))))
    sys.exit(0)

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
