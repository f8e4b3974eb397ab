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
    rows: list[Row] = []
    torch._logging.set_logs(dynamo=logging.ERROR)
    for name in shipped_names():
        estimator = read_estimator(name)
        module = SBNModule([6, 5, 4], estimator, 12)
        x = torch.rand(8, 12).round()
        torch._dynamo.reset()
        counters.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graphs = torch._dynamo.explain(module.loss_of)(x, module.estimator.draw_noise(module.model, x)).graph_count
        reasons = [
            re.findall(r"<function (\S+) at", reason) or reason.splitlines() for reason in counters["graph_break"]
        ]
        breaks = [first for first, *_ in reasons]
        rows.append({"estimator": name, "label": estimator.label, "graphs": graphs, "breaks": breaks})
    return rows
