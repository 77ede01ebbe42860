"""Torch's modules, data loaders, distributions and checks."""

from __future__ import annotations

from hotloop.profiling.diagnosis.catalogue.entry import Entry

NETWORKS: tuple[Entry, ...] = (
    Entry(
        "Anomaly detection is on: each operation keeps a traceback.",
        "Remove torch.autograd.set_detect_anomaly(True) once the error is found.",
        through=("torch.autograd.anomaly_mode", "torch.fx.traceback"),
        remains=(0.05, 0.0, 0.3),
    ),
    Entry(
        "Each step of the environment is checked.",
        "Make the environment without the checker: gymnasium.make(name, disable_env_checker=True).",
        through=("gymnasium.utils.passive_env_checker",),
        remains=(0.02, 0.0, 0.1),
    ),
    Entry(
        "Data that is in memory goes through a DataLoader, item by item.",
        "Index the tensors directly: order = torch.randperm(n); x[order[i : i + batch]].",
        through=("torch.utils.data",),
        remains=(0.1, 0.02, 0.3),
    ),
    Entry(
        "A network is put into training or evaluation mode in each step.",
        "Set the mode once, where acting and learning begin: it visits all layers.",
        calls=(
            "torch.nn.modules.module.Module.train",
            "torch.nn.modules.module.Module.eval",
            "torch.nn.modules.module.Module.requires_grad_",
        ),
        remains=(0.0, 0.0, 0.1),
    ),
    Entry(
        "All weights are copied very often.",
        "Copy them every so many updates, or mix them with torch._foreach_lerp_ on two lists made once.",
        calls=("torch.nn.modules.module.Module.load_state_dict", "torch.nn.modules.module.Module.state_dict"),
        sure=False,
        remains=(0.1, 0.0, 0.3),
    ),
)
