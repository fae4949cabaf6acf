"""What a site's answers tell of its patients: the attack that reads one off a gradient, and what is left of it.

python examples/leak.py
ALLFORONE_DATA=folder python examples/leak.py   # on real patients: docs/data.md

The attacker is whoever asks: the server, or who reads along there. It knows the model that it sent, and the answer.
"""

import os
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import allforone as afo
from allforone.fleet import Optimizer
from allforone.machines.optimizers import pack
from allforone.machines.site import Site
from allforone.machines.wire import decode, encode
from allforone.problems.data import draw

#: Of each column its mean and deviation, by which all sites scale it: agreed on beforehand, so that the attacker knows.
COLUMNS = {
    "age": (54.0, 9.0),
    "sex": (0.7, 0.46),
    "resting blood pressure": (132.0, 17.0),
    "cholesterol": (246.0, 52.0),
    "fasting sugar high": (0.15, 0.36),
    "highest heart rate": (150.0, 23.0),
    "angina by exercise": (0.33, 0.47),
    "ST depression": (1.0, 1.1),
    "pain: atypical": (0.16, 0.37),
    "pain: other": (0.28, 0.45),
    "pain: none": (0.48, 0.5),
    "ECG: ST-T wave": (0.02, 0.12),
    "ECG: hypertrophy": (0.49, 0.5),
}
MEAN, DEVIATION = torch.tensor(list(COLUMNS.values())).T


def invented(patients: int = 200) -> tuple[Tensor, Tensor]:
    """A table of patients who do not exist, and whether each is sick."""
    random = torch.Generator().manual_seed(3)
    table = MEAN + DEVIATION * torch.randn(patients, len(COLUMNS), generator=random)
    for place, name in enumerate(COLUMNS):
        share = COLUMNS[name][0]
        if share < 1 and name != "ST depression":  # a yes or a no
            table[:, place] = (torch.rand(patients, generator=random) < share).float()
        elif name != "ST depression":
            table[:, place] = table[:, place].round()
    table[:, 7] = table[:, 7].clamp(min=0).mul(10).round() / 10
    scaled = (table - MEAN) / DEVIATION
    risk = scaled @ torch.tensor([0.4, 0.5, 0.2, 0.2, 0.0, -0.6, 0.6, 0.6, -0.3, -0.3, 0.6, 0.0, 0.2])
    return scaled, (risk + torch.randn(patients, generator=random) > 0).float()[:, None]


def hospital() -> tuple[afo.Client, bool]:
    """A hospital's data, and whether they are real."""
    if os.environ.get("ALLFORONE_DATA"):
        from allforone.problems import heart_disease

        return heart_disease().clients[0], True
    return afo.Client(invented(), None, name="a hospital"), False


#: How many answers are attacked of each kind.
ANSWERS = 10
#: The paper's own model for Heart disease, and the step size that it prints; there, batches have one patient.
OPTIMIZER = Optimizer(partial(torch.optim.SGD, lr=0.05))
TASK = afo.Task(lambda: nn.Linear(13, 1), F.binary_cross_entropy_with_logits)


class Asked(NamedTuple):
    """A question to a site, and the patients that its answer was made of."""

    answer: dict[str, Tensor]  #: by the names of the model's parts: a gradient, or how far the site came
    patients: Tensor
    sick: Tensor


def ask(client: afo.Client, batch_size: int, step: int = 0, updates: int = 0) -> Asked:
    """One answer of a site, from its bytes: a gradient or, with updates, how far it came in a round of so many."""
    site = Site(TASK, client, 0, seed=127, batch_size=batch_size)
    models = {name: tensor.detach()[None] for name, tensor in TASK.initial_model(127).state_dict().items()}
    steps = range(step, step + max(1, updates))
    question = {"ask": "gradients", "round": 1, "step": step, "owners": [0], "models": models}
    if updates:
        optimizer = pack(OPTIMIZER, models, list(models), None)
        question |= {"ask": "walk", "steps": [steps.start, steps.stop], "parts": 2, "optimizer": optimizer}
    told = decode(site.answer(encode(question)))
    if updates:  # of the two halves of every batch that walk apart, the first
        way = told["ways"][0, 0]
        answer = {"weight": way[None, :-1], "bias": way[-1:]}
    else:
        answer = {name: tensor[0] for name, tensor in told["gradients"].items()}
    drawn = [draw(client.train, batch_size, seed=127, client=0, step=s, purpose="update") for s in steps]
    return Asked(answer, torch.cat([x for x, _ in drawn]), torch.cat([y for _, y in drawn]))


def attack(answer: dict[str, Tensor]) -> tuple[Tensor, bool]:
    """The patient, and whether sick. The gradient of a logistic model is (σ − y)·(x, 1): the weights' part over the
    bias's is x, and as σ lies between 0 and 1, the bias's is negative for the sick."""
    return (answer["weight"] / answer["bias"])[0], bool(answer["bias"] < 0)


def most_like(found: Tensor, patients: Tensor) -> float:
    """The correlation of what the attack gives with the patient who is most like it."""
    return max(float(torch.corrcoef(torch.stack([found, patient]))[0, 1]) for patient in patients)


def knowing_the_others(asked: Asked) -> Asked:
    """The answer for the first patient alone: the gradient is a mean, and what the others put in is subtracted."""
    model = TASK.initial_model(127)
    others, size = asked.patients[1:], len(asked.patients)
    surprise = (torch.sigmoid(model(others)) - asked.sick[1:]).detach()  # [size - 1, 1]
    alone = {
        "weight": size * asked.answer["weight"] - surprise.T @ others,
        "bias": size * asked.answer["bias"] - surprise.sum(0),
    }
    return Asked(alone, asked.patients[:1], asked.sick[:1])


class Left(NamedTuple):
    """What is left of the attack, over some answers."""

    recovered: int  #: patients, exactly
    likeness: float  #: with the patient of the answer who is most like what was found
    chance: float  #: the same with as many patients who were not in the answer


def left(client: afo.Client, batch_size: int, updates: int = 0, known: bool = False) -> Left:
    everybody = client.train.take(torch.arange(client.size))[0]
    recovered, likeness, chance = 0, 0.0, 0.0
    for number in range(ANSWERS):
        asked = ask(client, batch_size, number * max(1, updates), updates)
        asked = knowing_the_others(asked) if known else asked
        found, _ = attack(asked.answer)
        absent = everybody[~(everybody[:, None] == asked.patients).all(2).any(1)][: len(asked.patients)]
        recovered += bool(((asked.patients - found).norm(dim=1) < 1e-3 * asked.patients.norm(dim=1)).any())
        likeness += most_like(found, asked.patients) / ANSWERS
        chance += most_like(found, absent) / ANSWERS
    return Left(recovered, likeness, chance)


def main() -> dict[str, Left]:
    torch.set_num_threads(1)  # the model has 14 numbers
    client, real = hospital()
    print(f"{client.size} patients of {client.name}" + ("" if real else ", who do not exist"))
    asked = ask(client, 1)
    found, sick = attack(asked.answer)
    patient = asked.patients[0]
    if not real:  # what is real was scaled by numbers that only the hospital has
        patient, found = (x * DEVIATION + MEAN for x in (patient, found))
    print(f"\n{'one answer, batch of one':26}{'true':>12}{'recovered':>12}")
    for name, true, recovered in zip(COLUMNS, patient.tolist(), found.tolist(), strict=True):
        print(f"{name:26}{true:12.4f}{recovered:12.4f}")
    print(f"{'sick':26}{'yes' if asked.sick > 0 else 'no':>12}{'yes' if sick else 'no':>12}")
    ways: dict[str, tuple[int, int, bool]] = {
        "a gradient, batch of 1": (1, 0, False),
        "a gradient, batch of 8": (8, 0, False),
        "  the same, 7 of the 8 known": (8, 0, True),
        "a gradient, batch of 32": (32, 0, False),
        "a round of 2 updates, batch of 1": (1, 2, False),
        "a round of 10 updates, batch of 1": (1, 10, False),
        "a round of 50 updates, batch of 1": (1, 50, False),
    }
    results = {name.strip(): left(client, *way) for name, way in ways.items()}
    print(f"\n{f'{ANSWERS} answers':36}{'recovered':>10}{'correlation':>13}{'by chance':>11}")
    for name, result in zip(ways, results.values(), strict=True):
        print(f"{name:36}{result.recovered:10}{result.likeness:13.2f}{result.chance:11.2f}")
    print("\nCorrelation: with the patient of the answer who is most like what was found; by chance: with as many who")
    print(
        "were not in it. In larger batches and longer rounds the division gives a weighted mean of patients. That this"
    )
    print("one attack fails does not make an answer safe: it is the least that an attacker can do.")
    return results


if __name__ == "__main__":
    main()
