# Checks: script path with spaces, umlauts and quotes: traceback, sys.argv, siblings, spawn and subprocess of itself.
import sys, os, subprocess
import geschwister_ä
print(ascii(os.path.basename(sys.argv[0])), ascii(os.path.basename(os.path.dirname(__file__))), geschwister_ä.V, sys.argv[1:], flush=True)
if len(sys.argv) == 1 and __name__ == '__main__':
    print(subprocess.run([sys.executable, __file__, 'child'], capture_output=True, text=True).stdout)
    import multiprocessing as mp
    p = mp.get_context('spawn').Process(target=print, args=('spawned',)); p.start(); p.join(); print(p.exitcode)
    1 / 0
