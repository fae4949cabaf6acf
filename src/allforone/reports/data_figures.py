"""A small picture of what each client has."""

from pathlib import Path

import torch

from ..errors import InputError, blaming
from ..opening import to_write
from ..problems import Problem
from ..problems.data import Finite
from .figures import RC


def draw_clients(problem: Problem, out: Path) -> Path:
    """Samples per label of each client; where the inputs are volumes, a middle slice with the outline of its mask."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    data = [client.train for client in problem.clients]
    if not all(isinstance(part, Finite) and part.tensors for part in data):
        raise InputError(f"{problem.name}: its clients' data are streams or read item by item: nothing to draw")
    tensors = [part.tensors for part in data if isinstance(part, Finite) and part.tensors]
    names = [client.name or str(i) for i, client in enumerate(problem.clients)]
    with rc_context(RC):
        if tensors[0][0].dim() == 5:
            figure = Figure(figsize=(2.4 * len(names), 3.0), layout="constrained")
            for axis, name, (volumes, masks) in zip(figure.subplots(1, len(names)), names, tensors, strict=True):
                middle = volumes.shape[-1] // 2
                axis.imshow(volumes[0, 0, :, :, middle].T, cmap="gray", origin="lower")
                axis.contour(masks[0, :, :, middle].T, [0.5], colors="#E69F00", linewidths=1)
                axis.set(title=f"{name}, {len(volumes)} volumes", xticks=[], yticks=[])
                axis.grid(False)
        else:
            labels = [targets.flatten().long() for _, targets in tensors]
            classes = 1 + max(int(label.max()) for label in labels)
            counts = torch.stack([label.bincount(minlength=classes) for label in labels])
            size = (max(4.0, 0.42 * len(names) + 1.5), max(2.4, 0.28 * classes + 1.0))
            figure = Figure(figsize=size, layout="constrained")
            axis = figure.subplots()
            shown = axis.imshow(counts.T.numpy(), cmap="cividis", aspect="auto", origin="lower")
            axis.set(xlabel="client", ylabel="label", xticks=range(len(names)), yticks=range(classes))
            axis.set_xticklabels(names, rotation=0 if len(names[0]) < 3 else 20)
            axis.grid(False)
            figure.colorbar(shown, label="training samples")
        out.parent.mkdir(parents=True, exist_ok=True)
        with blaming(f"{out}: cannot be drawn", "Give a path that ends in .png, .pdf or .svg"):
            figure.savefig(to_write(out))
    return out
