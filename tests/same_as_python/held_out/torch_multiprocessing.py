# Checks: torch.multiprocessing with shared tensors, DataLoader with 2 forked workers (seeds, worker_init_fn, exception in a worker), child's exit code.
import os; os.makedirs("tmp", exist_ok=True); os.environ["TMPDIR"] = os.path.abspath("tmp")  # keeps left-overs of the libraries in the cwd
import torch, torch.multiprocessing as mp, sys
torch.set_num_threads(1)
class DS(torch.utils.data.Dataset):
    def __init__(self, bad=None): self.bad = bad
    def __len__(self): return 6
    def __getitem__(self, i):
        if i == self.bad: raise IndexError("bad item")
        return torch.tensor([i, i * i])
def work(t): t += 5; sys.exit(3)
if __name__ == "__main__":
    t = torch.zeros(2).share_memory_(); p = mp.get_context("fork").Process(target=work, args=(t,)); p.start(); p.join(); print(t, p.exitcode)
    torch.manual_seed(0); print([b.tolist() for b in torch.utils.data.DataLoader(DS(), 2, shuffle=True, num_workers=2, multiprocessing_context="fork")])
    try: list(torch.utils.data.DataLoader(DS(3), 2, num_workers=2, multiprocessing_context="fork"))
    except IndexError as e: print(str(e).splitlines()[0], str(e).count("File"))
