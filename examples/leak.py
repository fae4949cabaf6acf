"""What a site's answers tell of its patients: the attack that reads one off a gradient, and what is left of it.

python examples/leak.py
ALLFORONE_DATA=folder python examples/leak.py   # the real table of Cleveland, after `allforone data fetch heart-disease`

The attacker is whoever asks: the server, or who reads along there. It knows the model that it sent, and the answer.
"""

import os
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import allforone as afo
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


#: The paper's own settings for Heart disease: a logistic model, and batches of one patient.
OPTIMIZER = {"class": "SGD", "groups": [{"lr": 0.05, "names": ["weight", "bias"]}], "state": {}}
TASK = afo.Task(lambda: nn.Linear(13, 1), F.binary_cross_entropy_with_logits)


class Asked(NamedTuple):
    """A question to a site, and the patients that its answer was made of."""

    answer: dict[str, Tensor]  #: by the names of the model's parts: a gradient, or how far the site came
    patients: Tensor
    sick: Tensor


def ask(client: afo.Client, batch_size: int, step: int = 0, updates: int = 0) -> Asked:
    """One answer of a site, from its bytes: a gradient or, with updates, the first half's way in a round of so many."""
    site = Site(TASK, client, 0, seed=127, batch_size=batch_size)
    models = {name: tensor.detach()[None] for name, tensor in TASK.initial_model(127).state_dict().items()}
    about = {"round": 1, "owners": [0], "models": models}
    if updates:
        steps = range(step, step + updates)
        question = {"ask": "walk", "steps": [steps.start, steps.stop], "parts": 2, "optimizer": OPTIMIZER, **about}
        way = decode(site.answer(encode(question)))["ways"][0, 0]
        answer = {"weight": way[None, :-1], "bias": way[-1:]}
    else:
        steps = range(step, step + 1)
        answer = decode(site.answer(encode({"ask": "gradients", "step": step, **about})))["gradients"]
        answer = {name: tensor[0] for name, tensor in answer.items()}
    drawn = [draw(client.train, batch_size, seed=127, client=0, step=s, purpose="update") for s in steps]
    return Asked(answer, torch.cat([x for x, _ in drawn]), torch.cat([y for _, y in drawn]))


def attack(answer: dict[str, Tensor]) -> tuple[Tensor, bool]:
    """The patient, and whether sick. The gradient of a logistic model is (σ − y)·(x, 1): the weights' part over the
    bias's is x, and as σ lies between 0 and 1, the bias's is negative for the sick."""
    return (answer["weight"] / answer["bias"])[0], bool(answer["bias"] < 0)


def likeness(asked: Asked) -> float:
    """The correlation of what the attack gives with the patient who is most like it."""
    found = attack(asked.answer)[0]
    return max(float(torch.corrcoef(torch.stack([found, patient]))[0, 1]) for patient in asked.patients)


def is_exact(asked: Asked) -> bool:
    found = attack(asked.answer)[0]
    return bool(((asked.patients - found).norm(dim=1) < 1e-3 * asked.patients.norm(dim=1)).any())


class Left(NamedTuple):
    """What is left of the attack, over 20 answers."""

    exact: int
    likeness: float


def left(client: afo.Client, batch_size: int, updates: int = 0) -> Left:
    answers = [ask(client, batch_size, step * max(1, updates), updates) for step in range(20)]
    return Left(sum(map(is_exact, answers)), sum(map(likeness, answers)) / len(answers))


def main() -> dict[str, Left]:
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
    ways = {
        "a gradient, batch of 1": (1, 0),
        "a gradient, batch of 8": (8, 0),
        "a gradient, batch of 32": (32, 0),
        "a round of 2 updates, batch of 1": (1, 2),
        "a round of 10 updates, batch of 1": (1, 10),
        "a round of 10 updates, batch of 8": (8, 10),
        "a round of 100 updates, batch of 1": (1, 100),
    }
    results = {name: left(client, *way) for name, way in ways.items()}
    print(f"\n{'20 answers':36}{'patients':>10}{'correlation with the':>23}")
    print(f"{'':36}{'recovered':>10}{'patient most like it':>23}")
    for name, result in results.items():
        print(f"{name:36}{result.exact:10}{result.likeness:23.2f}")
    print(
        "\nIn larger batches and longer rounds the same division gives a weighted mean of patients. That one division"
    )
    print("fails does not make an answer safe: this is the least that an attacker can do.")
    return results


if __name__ == "__main__":
    main()
