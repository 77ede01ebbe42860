# Thread counts that are set after torch was imported come too late, as under Python.
import os

import torch

os.environ["OMP_NUM_THREADS"] = "1"
print(torch.get_num_threads())
