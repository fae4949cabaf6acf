"""Patients who do not exist, to try a federation with: python make_patients.py SEED > patients.csv"""

import sys

import torch

generator = torch.Generator().manual_seed(int(sys.argv[1]))
inputs = torch.randn(120, 13, generator=generator)
noise = torch.randn(120, generator=generator)
ill = inputs @ torch.linspace(-1, 1, 13) + noise > 0
for patient, disease in zip(inputs.tolist(), ill.tolist(), strict=True):
    print(",".join(f"{value:.4f}" for value in patient), int(disease), sep=",")
