import traceback
try: import torch
except Exception: traceback.print_exc()
try: import gymnasium
except Exception: traceback.print_exc()
try: import wandb
except Exception: traceback.print_exc()
try: import gym.core
except Exception: traceback.print_exc()
import stable_baselines3
