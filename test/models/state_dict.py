#!/usr/bin/env python3
"""Writes state_dict.pt beside itself, as torch.save does: python3 state_dict.py      needs torch"""
import os
import torch

a = torch.arange(12.0).reshape(3, 4)
state = {"a.weight": a, "a.bias": torch.tensor([0.5, -2.0, 3.0]).bfloat16(), "tied.weight": a, "row": a[1], "count": torch.tensor(7)}
model = torch.nn.Module()
model.p = torch.nn.Parameter(torch.full((2,), 1.5))
torch.save({"model": {**state, "p": model.p}, "epoch": 3, "lr": 1e-3, "name": "x", "none": None, "sizes": [1, (2, -3)]},
           os.path.join(os.path.dirname(os.path.abspath(__file__)), "state_dict.pt"))
