"""Dyna-Q for a depot robot.  The table is a NumPy array whose rows are found through a dict."""
import argparse
import csv
import json
import os
import pickle
import random
import tempfile
import time

import numpy as np

SIZE = 9
WALLS = {(2, 2), (2, 3), (2, 5), (2, 6), (6, 2), (6, 3), (6, 5), (6, 6), (4, 4)}
DOCKS = [(0, 0), (0, 8), (8, 0), (8, 8)]
ORDERS = {0: (0, 1), 1: (0, -1), 2: (1, 0), 3: (-1, 0), 4: None, 5: "wait"}
FREE = [(x, y) for x in range(SIZE) for y in range(SIZE) if (x, y) not in WALLS]
N_ORDERS = len(ORDERS)
count = {"shift": 0}


# ---------------------------------------------------------------- the depot
def open_shift(rnd, carts):
    return {"rnd": rnd, "robot": rnd.choice(FREE), "box": rnd.randrange(4), "goal": rnd.randrange(4), "held": False,
            "carts": [rnd.choice(FREE) for _ in range(carts)], "clock": 0, "delivered": 0}


def roll(place, d):
    q = (place[0] + d[0], place[1] + d[1])
    return q if 0 <= q[0] < SIZE and 0 <= q[1] < SIZE and q not in WALLS else place


def work(shift, order):
    """One tick of the depot: the robot's order, then all the carts."""
    count["shift"] += 1
    rnd, pay = shift["rnd"], -0.05
    shift["clock"] += 1
    what = ORDERS[order]
    if what is None:
        if not shift["held"] and shift["robot"] == DOCKS[shift["box"]]:
            shift["held"] = True
            pay += 1.0
        elif shift["held"] and shift["robot"] == DOCKS[shift["goal"]]:
            shift["held"] = False
            shift["delivered"] += 1
            shift["box"], shift["goal"] = rnd.randrange(4), rnd.randrange(4)
            pay += 3.0
        else:
            pay -= 0.2
    elif what != "wait":
        d = what if rnd.random() > 0.05 else ORDERS[rnd.randrange(4)]
        shift["robot"] = roll(shift["robot"], d)
    moved = []
    for c in shift["carts"]:
        if rnd.random() < 0.6:
            n = roll(c, ORDERS[rnd.randrange(4)])
            c = c if n in moved else n
        moved.append(c)
        if c == shift["robot"]:
            pay -= 0.4
    shift["carts"] = moved
    return pay, shift["clock"] >= 200


def sight(shift):
    """A tuple that stands for the situation."""
    x, y = shift["robot"]
    taken = 0
    for cx, cy in shift["carts"]:
        dx, dy = cx - x, cy - y
        if abs(dx) + abs(dy) == 1:
            taken |= 1 << (dx + 1 if dy == 0 else 3 + (dy > 0)) % 5
    return x, y, shift["held"], shift["goal"] if shift["held"] else shift["box"], taken


# ---------------------------------------------------------------- the table
class Ledger:
    def __init__(self, rows=60000, past=50000):
        self.row = {}
        self.q = np.full((rows, N_ORDERS), 0.5)
        self.seen = np.zeros((rows, N_ORDERS), dtype=np.int64)
        self.past = np.zeros((past, 3), dtype=np.int64)
        self.pay = np.zeros(past)
        self.n = 0

    def find(self, key):
        r = self.row.get(key)
        if r is None:
            r = self.row[key] = len(self.row)
        return r

    def note(self, s, a, pay, s2):
        k = self.n % len(self.pay)
        self.past[k, 0] = s
        self.past[k, 1] = a
        self.past[k, 2] = s2
        self.pay[k] = pay
        self.n += 1
        return k

    def dump(self, path):
        with open(path, "wb") as f:
            pickle.dump((list(self.row.items())[:4000], self.q[:len(self.row)]), f)


def inspect(book, seed, carts):
    shift, over, total = open_shift(random.Random(seed), carts), False, 0.0
    while not over:
        r = book.row.get(sight(shift))
        order = int(book.q[r].argmax()) if r is not None else 5
        pay, over = work(shift, order)
        total += pay
    return total


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--dreams", type=int, default=48)
    a = p.parse_args()
    rnd = random.Random(a.seed)
    gen = np.random.default_rng(a.seed)
    book = Ledger()
    place = tempfile.TemporaryDirectory()
    out = open(os.path.join(place.name, "shifts.csv"), "w", newline="")
    rows = csv.writer(out)

    now = time.perf_counter_ns
    w = dict.fromkeys("abcdefghijk", 0)
    started = t = now()
    finish = started + int(a.seconds * 1e9)
    steps = updates = shifts = 0
    carts, level, alpha, gamma = 4, [], 0.2, 0.95
    while t < finish:
        shift = open_shift(random.Random(rnd.random()), carts)
        u = now(); w["a"] += u - t; t = u
        s = book.find(sight(shift))
        u = now(); w["b"] += u - t; t = u
        over, total, hunger = False, 0.0, 0.0
        while not over and t < finish:
            eps = max(0.03, 0.5 * 0.9997 ** (steps / 5))
            u = now(); w["k"] += u - t; t = u
            order = rnd.randrange(N_ORDERS) if rnd.random() < eps else int(
                (book.q[s] + 0.1 / np.sqrt(1 + book.seen[s])).argmax())
            u = now(); w["c"] += u - t; t = u
            pay, over = work(shift, order)
            u = now(); w["a"] += u - t; t = u
            s2 = book.find(sight(shift))
            u = now(); w["b"] += u - t; t = u
            book.seen[s, order] += 1
            total += pay
            steps += 1
            hunger = 0.9 * hunger + (pay < 0)
            u = now(); w["k"] += u - t; t = u
            latest = book.note(s, order, pay, s2)
            u = now(); w["d"] += u - t; t = u
            pick = gen.integers(0, min(book.n, len(book.pay)), min(a.dreams, 1 + book.n // 20))
            pick[0] = latest
            was, did, then = book.past[pick].T
            got = book.pay[pick]
            u = now(); w["e"] += u - t; t = u
            error = got + gamma * book.q[then].max(1) - book.q[was, did]
            u = now(); w["f"] += u - t; t = u
            np.add.at(book.q, (was, did), alpha * error)
            updates += 1
            u = now(); w["g"] += u - t; t = u
            s = s2
        if not over:
            break
        shifts += 1
        level = (level + [shift["delivered"]])[-20:]
        if len(level) == 20 and sum(level) / 20 > 6 and carts < 6:
            carts, level = carts + 1, []
        alpha = max(0.05, alpha * 0.999)
        u = now(); w["k"] += u - t; t = u
        rows.writerow([shifts, steps, round(total, 3), shift["delivered"], carts, len(book.row), eps])
        out.flush()
        u = now(); w["i"] += u - t; t = u
        if shifts % 15 == 0:
            inspect(book, shifts, carts)
            u = now(); w["h"] += u - t; t = u
        if shifts % 25 == 0:
            book.dump(os.path.join(place.name, "ledger.pkl"))
            u = now(); w["j"] += u - t; t = u
    u = now(); w["k"] += u - t; t = u
    out.close()
    place.cleanup()
    names = dict(a="env", b="observe", c="act", d="store", e="sample", f="forward", g="optimiser", h="evaluate",
                 i="log", j="save", k="own")
    print(json.dumps({"env_steps": steps, "updates": updates, "episodes": shifts, "seconds": (t - started) / 1e9,
                      "phases": {names[k]: v / 1e9 for k, v in w.items()}, "calls_of_step": count["shift"]}))


if __name__ == "__main__":
    main()
