# Checks: os.environ.clear() and os.unsetenv, then children, multiprocessing spawn and gymnasium import still work and see nothing.
import os, sys, subprocess, multiprocessing as mp
def child(): print("spawned", sorted(k for k in os.environ if k != "LC_CTYPE"))
if __name__ == "__main__":
    os.environ.clear()
    os.environ["ONLY"] = "me"
    print(subprocess.run([sys.executable, "-c", "import os; print(sorted(k for k in os.environ if k != 'LC_CTYPE'))"], capture_output=True, text=True).stdout)
    import gymnasium
    sys.stdout.flush()
    p = mp.get_context("spawn").Process(target=child); p.start(); p.join(); print(p.exitcode, dict(os.environ))
