"""Which estimators torch.compile traces as one graph."""

from __future__ import annotations

import logging
import re
import warnings

import torch
import torch._dynamo
import torch._logging
from torch._dynamo.utils import counters

from lightning_modules.sbn_module import SBNModule
from lightning_modules.shipped_estimators import read_estimator, shipped_names

Row = dict[str, object]


def graph_breaks() -> list[Row]:
    """A row for each shipped estimator: in how many graphs its loss is compiled, and what stays Python in between."""
    torch._logging.set_logs(dynamo=logging.ERROR)
    return [row_of(name) for name in shipped_names()]


def row_of(name: str) -> Row:
    """The row of that estimator."""
    estimator = read_estimator(name)
    module, x = SBNModule([6, 5, 4], estimator, 12), torch.rand(8, 12).round()
    torch._dynamo.reset()
    counters.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graphs = torch._dynamo.explain(module.loss_of)(x, estimator.draw_noise(module.model, x)).graph_count
    breaks = [_name_of(reason) for reason in counters["graph_break"]]
    return {"estimator": name, "label": estimator.label, "graphs": graphs, "breaks": breaks}


def _name_of(reason: str) -> str:
    """The function that torch gives as a reason, or the first line of another one."""
    found = re.search(r"the function `(\w+)`", reason)
    return found[1] if found else reason.splitlines()[0]
