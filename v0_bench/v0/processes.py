"""The processes of a training run: one, or those that `accelerate launch` or `torchrun` started."""

from __future__ import annotations

import os
from typing import Any

from torch import Tensor, nn


class Processes:
    """Which process this is, of how many. One process needs neither accelerate nor its state."""

    def __init__(self, device: str) -> None:
        self.count = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank, self.device = 0, device
        self._accelerator: Any = None
        if self.count > 1:
            from accelerate import Accelerator, DistributedDataParallelKwargs

            self._options = DistributedDataParallelKwargs()
            self._accelerator = Accelerator(cpu=device == "cpu", kwargs_handlers=[self._options])
            self.rank = self._accelerator.process_index
            self.device = str(self._accelerator.device)

    @property
    def main(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def prepare(self, module: nn.Module, unused: bool) -> nn.Module:
        """The module with gradients averaged; `unused`: some of its weights may have none."""
        if self._accelerator is None:
            return module
        self._options.find_unused_parameters = unused
        prepared: nn.Module = self._accelerator.prepare_model(module)
        return prepared

    def mean(self, loss: Tensor) -> float:
        """The mean of a number over the processes."""
        if self._accelerator is None:
            return float(loss)
        return float(self._accelerator.reduce(loss, "mean"))

    def wait(self) -> None:
        """Returns when all processes have come here."""
        if self._accelerator is not None:
            self._accelerator.wait_for_everyone()

    def progress(self, done: int, steps: int) -> Any:
        """A bar that shows up after 3 seconds, in the main process."""
        from tqdm import tqdm

        return tqdm(
            desc="training the adapter", initial=done, total=steps, delay=3, disable=not self.main
        )
