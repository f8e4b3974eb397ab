"""Which estimators torch.compile traces as one graph."""

from __future__ import annotations

import logging
import warnings

import torch
import torch._dynamo
import torch._logging

from lightning_modules.sbn_module import SBNModule
from lightning_modules.shipped_estimators import read_estimator, shipped_names

Row = dict[str, object]


def graph_breaks() -> list[Row]:
    """A row for each shipped estimator: in how many graphs its loss is compiled, and why the graph breaks."""
    rows: list[Row] = []
    torch._logging.set_logs(dynamo=logging.ERROR)
    for name in shipped_names():
        module = SBNModule([6, 5, 4], read_estimator(name), 12)
        x = torch.rand(8, 12).round()
        torch._dynamo.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch._dynamo.explain(module.loss_of)(x, module.estimator.draw_noise(module.model, x))
        reasons = dict.fromkeys(each.reason.splitlines()[0] for each in found.break_reasons)
        rows.append({"estimator": name, "graphs": found.graph_count, "breaks": list(reasons)})
    return rows
