"""redis-py and pottery as contestants: threads, and the library's own lock. The workloads are those of the Rust files of the same names."""
import json, sys, threading, time
import redis

workload, library, url, size, part, processes = sys.argv[1:7]
# Slow workloads are measured less often.
quick, processes = size == "quick" or library == "pottery", int(processes)
# By default a pool refuses a thousand threads; a shorter sleep than the default would only load the server more.
if library != "redis-py":
    client = redis.Redis(connection_pool=redis.ConnectionPool.from_url(url, max_connections=3000))
else:
    client = redis.Redis.from_url(url)
out = {"values": {}, "failures": 0, "overlaps": 0, "problem": None, "locks": 0, "began": 0, "ended": 0, "shares": [],
       "holds": []}
mutex = threading.Lock()


def lock(key):
    if library == "pottery":
        from pottery import Redlock
        return Redlock(key=key, masters={client}, auto_release_time=30)
    return client.lock(key, timeout=30)


def attempt(key, body):
    try:
        with lock(key):
            body()
        with mutex:
            out["locks"] += 1
        return True
    except Exception as error:
        with mutex:
            out["failures"] += 1
            out["problem"] = out["problem"] or f"{type(error).__name__}: {error}"
        return False


def ready():
    attempt("warm:0", lambda: None)
    out["locks"] = 0
    print("ready", flush=True)
    sys.stdin.readline()
    out["began"] = time.monotonic_ns() // 1000
    return time.perf_counter()


def all_at_once(targets):
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def pair():
    pairs = 500 if quick else 5000
    began, micros = ready(), []
    for _ in range(pairs):
        started = time.perf_counter()
        attempt("w1:0", lambda: None)
        micros.append((time.perf_counter() - started) * 1e6)
    out["values"]["µs per pair"] = (time.perf_counter() - began) * 1e6 / pairs
    micros.sort()
    out["values"]["p50 µs"], out["values"]["p99 µs"] = micros[pairs // 2], micros[pairs * 99 // 100]


def pairs():
    each = 10 if quick else 100

    def task(key):
        for _ in range(each):
            attempt(key, lambda: None)

    began = ready()
    all_at_once([lambda key=f"w:{key}": task(key) for key in range(64)])
    out["values"]["pairs/s"] = out["locks"] / (time.perf_counter() - began)


def sale(in_memory):
    buyers, inside, stock = (300 if quick else 1000) // processes, [0, 0], [0, 0]

    def body(item):
        inside[item] += 1
        out["overlaps"] += inside[item] > 1
        if in_memory:
            sold = stock[item]
            time.sleep(0)
            stock[item] = sold + 1
        else:
            sold, hand_offs, last = ((client.get(f"stock:{item}") or b"0 0 0").decode()).split()
            hand_offs = int(hand_offs) + (last != part)
            client.set(f"stock:{item}", f"{int(sold) + 1} {hand_offs} {part}")
        inside[item] -= 1

    began = ready()
    all_at_once([lambda item=buyer % 2: attempt(f"item:{item}", lambda: body(item)) for buyer in range(buyers)])
    wall = time.perf_counter() - began
    out["values"]["wall ms"] = wall * 1e3
    out["values"]["µs per hand-over"] = wall * 1e6 / (buyers / 2)


def fairness():
    seconds, tasks = (0.8 if quick else 3.0), 50 // processes
    shares, longest, held = [0] * tasks, [0.0] * tasks, [0.0] * tasks
    began = ready()
    end = began + seconds

    def task(number):
        while time.perf_counter() < end:
            asked = time.perf_counter()

            def body():
                entered = time.perf_counter()
                longest[number] = max(longest[number], entered - asked)
                time.sleep(0.001)
                held[number] += time.perf_counter() - entered

            one = lock("w5:0")
            patience = max(end - asked, 0.001)
            if not (one.acquire(timeout=patience) if library == "pottery" else one.acquire(blocking_timeout=patience)):
                longest[number] = max(longest[number], time.perf_counter() - asked)
                return
            body()
            shares[number] += 1
            one.release()

    all_at_once([lambda number=number: task(number) for number in range(tasks)])
    out["locks"], out["shares"] = sum(shares), [float(share) for share in shares]
    out["values"] |= {"span s": time.perf_counter() - began, "held s": sum(held), "longest wait ms": max(longest) * 1e3}


{"pair": pair, "pairs": pairs, "sale": lambda: sale(False), "sale-in-memory": lambda: sale(True),
 "fairness": fairness}[workload]()
out["ended"] = time.monotonic_ns() // 1000
print(json.dumps(out), flush=True)
sys.stdin.readline()
