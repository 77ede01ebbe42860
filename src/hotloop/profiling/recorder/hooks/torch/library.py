"""What the hooks use of torch, once the script has imported it."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn


class Library:
    """Classes and functions of torch. Until it is imported, nothing is a tensor and no graph is built."""

    __slots__ = ("batchnorm", "dropout", "grad_enabled", "item", "sized", "tensor")

    def __init__(self) -> None:
        self.tensor: type[torch.Tensor] | None = None
        self.dropout: type[nn.modules.dropout._DropoutNd] | None = None
        self.batchnorm: type[nn.modules.batchnorm._BatchNorm] | None = None
        self.grad_enabled: Callable[[], bool] = bool
        self.item: Callable[[torch.Tensor], float] | None = None
        """Reads a number without being counted as a host sync."""
        self.sized: set[type] = set()
        """Types whose `nbytes` cannot fail."""

    def use(self, torch: ModuleType) -> None:
        """Take what is needed from torch."""
        self.tensor = torch.Tensor
        self.dropout = torch.nn.modules.dropout._DropoutNd
        self.batchnorm = torch.nn.modules.batchnorm._BatchNorm
        self.grad_enabled = torch.is_grad_enabled
        self.item = torch._C.TensorBase.item
        self.sized |= {torch.Tensor, torch.nn.Parameter}
