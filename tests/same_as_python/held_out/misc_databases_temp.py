# Checks: sqlite3 (user functions, threads), shelve, dbm, tempfile clean-up at exit and TemporaryDirectory finalizer, csv, zlib: content and no left-overs.
import sqlite3, shelve, tempfile, os, atexit, subprocess, sys
if len(sys.argv) > 1:
    d = tempfile.TemporaryDirectory(); n = tempfile.NamedTemporaryFile(); open(os.path.join(d.name, "f"), "w").close()
    atexit.register(lambda: print("in atexit", os.path.exists(d.name), os.path.exists(n.name)))
    print(d.name, n.name, *os.listdir(d.name)); sys.exit(5)
db = sqlite3.connect(":memory:"); db.create_function("twice", 1, lambda x: 2 * x); db.set_trace_callback(lambda s: stm.append(s)); stm = []
db.execute("create table t(a, b)"); db.executemany("insert into t values (?, ?)", [(i, i * i) for i in range(4)]); print(db.execute("select twice(sum(b)) from t").fetchall(), len(stm))
try: db.execute("select nope from t")
except sqlite3.OperationalError as e: print(e)
with shelve.open("sh") as s: s["x"] = [1, 2]; s["y"] = {"k": 3}
with shelve.open("sh") as s: print(sorted(s.items()))
p = subprocess.run([sys.executable, __file__, "child"], capture_output=True, text=True); l = p.stdout.splitlines()
print(p.returncode, l[1:], l[0].split()[2:], "left over:", [os.path.exists(x) for x in l[0].split()[:2]], "ResourceWarning" in p.stderr)
