"""A client's own model to take away: its weights, a short script that loads them and, where torch can, ONNX."""

import copy
import inspect
import logging
import warnings
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from ..errors import InputError, blaming, within
from ..fleet import load_row, row
from ..problems import Task
from ..problems.calling import arguments
from ..problems.data import draw
from ..problems.tree import Tree, mapped
from . import checkpoint
from .config import PYTHON, parse
from .folder import Folder, refuse_used
from .names import find_client
from .parts import load_task, needs_data

LOADER = '''"""{title}: its own model, trained with allforone. Elsewhere: `from load import load`."""
from pathlib import Path

from safetensors.torch import load_file


def load(model):
    """`model`, of the architecture that was trained, with this client's weights."""
    model.load_state_dict(load_file(Path(__file__).with_name("model.safetensors")))
    return model.eval()
'''
ARCHITECTURE = """

if __name__ == "__main__":
    from allforone.runs import load_problem, parse
    print(load(load_problem(parse({given!r}).problem, {seed}).initial_model({seed})))
"""


def export_client(path: Path, client: str, out: Path | None = None, *, onnx: bool = False) -> list[Path]:
    """Client `client`, by number or name, of a finished run, into a new folder."""
    if (path / "runs").is_dir() and not (path / "config.yaml").is_file():
        run = next((file.parent for file in sorted(path.glob("runs/*/*/config.yaml"))), path / "runs" / "…")
        raise InputError(f"{path} holds a comparison: give one of its runs, such as {run}")
    folder = Folder.open(path)
    if not folder.finished:
        raise InputError(f"{path}: this run is not finished; go on with `allforone resume {path}`")
    config = parse(folder.config, str(path / "config.yaml"))
    number, given = find_client([member["name"] for member in folder.clients], client), config.plain()["problem"]
    out = out or path / "export" / f"client-{number}"
    title = f"Client {folder.clients[number]['name'] or number}"
    if config.problem.name == PYTHON:
        if onnx:
            raise InputError(f"{path}: started from Python, so its model is known there only: use result.export there")
        return write_weights(row(folder.models(), number), out, title)
    problem = load_task(config.problem, config.seed)
    with within(f"{path / 'models.safetensors'}"):
        module = load_row(copy.deepcopy(problem.initial_model(config.seed)), folder.models(), number)
    how = ARCHITECTURE.format(given={"problem": given}, seed=config.seed)
    return export_module(module, problem, number, out, title, how, onnx=onnx)


def export_module(
    module: nn.Module, task: Task, client: int, out: Path, title: str, how: str = "", *, onnx: bool = False
) -> list[Path]:
    if onnx:
        require_onnx()
        clients = needs_data(task, "ONNX, which is made by a batch of training data,").clients
    written = write_weights(module.state_dict(), out, title, how)
    if onnx:
        inputs, _ = draw(clients[client].train, 2, seed=0, client=client, step=0, purpose="example")
        written.append(write_onnx(module, inputs, out / "model.onnx"))
    return written


def write_weights(state: dict[str, Tensor], out: Path, title: str, how: str = "") -> list[Path]:
    refuse_used(out)
    out.mkdir(parents=True, exist_ok=True)
    checkpoint.write_tensors(out / "model.safetensors", {name: tensor.clone() for name, tensor in state.items()})
    named = "".join(c for c in title if c.isprintable()).replace("\\", "/").replace('"', "'")
    (out / "load.py").write_text(LOADER.format(title=named) + how, encoding="utf-8")
    return [out / "model.safetensors", out / "load.py"]


def require_onnx() -> None:
    for package in ("onnx", "onnxscript"):
        if find_spec(package) is None:
            raise InputError(f"ONNX needs the package {package}: pip install 'allforone[onnx]'")


def write_onnx(module: nn.Module, inputs: Tree, path: Path) -> Path:
    """For batches of any size."""
    given, named = arguments(module, inputs)
    names = [name for name in inspect.signature(module.forward).parameters if name not in named][: len(given)]
    sizes = mapped(lambda _: {0: torch.export.Dim("batch")}, {**dict(zip(names, given, strict=True)), **named})
    single = isinstance(inputs, Tensor)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells what else could be installed
    failed = blaming("torch cannot write this model as ONNX", "Its weights are in model.safetensors")
    with warnings.catch_warnings(action="ignore"), failed:
        torch.onnx.export(
            module.eval(),
            given,
            path,
            kwargs=named,
            dynamo=True,
            external_data=False,
            verbose=False,
            input_names=["inputs"] if single else None,
            output_names=["outputs"] if single else None,
            dynamic_shapes=sizes,
        )
    return path
