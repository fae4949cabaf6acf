"""Batches of every shape that people have, models that take them, and how a plain loop would call these."""

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler

import allforone as afo

CLIENTS, SAMPLES = 4, 24


class Case(NamedTuple):
    problem: afo.Problem
    call: Any  #: (model, inputs) → output, as the user's own loop has it


def random(k: int) -> torch.Generator:
    return torch.Generator().manual_seed(k)


class Patient(nn.Module):
    """An image and an age."""

    def __init__(self):
        super().__init__()
        self.look, self.last = nn.Conv2d(1, 3, 3), nn.Linear(3 * 4 + 1, 2)

    def forward(self, image, age):
        return self.last(torch.cat([self.look(image).flatten(1), age], 1))


def image_and_age() -> Case:
    def client(k):
        image, age = torch.randn(SAMPLES, 1, 4, 4, generator=random(k)), torch.rand(SAMPLES, 1, generator=random(k))
        data = (image, age), (image.mean((1, 2, 3)) > 0).long()
        return afo.Client(data, data)

    problem = afo.Problem(Patient, F.cross_entropy, clients=[client(k) for k in range(CLIENTS)])
    return Case(problem, lambda model, x: model(*x))


class Pooled(nn.Module):
    """Words and which of them count."""

    def __init__(self):
        super().__init__()
        self.words, self.last = nn.Embedding(20, 6), nn.Linear(6, 3)

    def forward(self, ids, mask):
        shares = mask.float() / mask.float().sum(1, keepdim=True)
        return self.last((self.words(ids) * shares[..., None]).sum(1)).tanh()


class Output(OrderedDict):
    """What libraries give: a dict whose entries are attributes too."""

    __getattr__ = OrderedDict.__getitem__


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.pooled = Pooled()

    def forward(self, input_ids, attention_mask=None):
        return Output(logits=self.pooled(input_ids, attention_mask))


class Texts(Dataset):
    """Items that are dicts, with their labels."""

    def __init__(self, k: int, lengths=(5,)):
        self.items = []
        for n in range(SAMPLES):
            words = torch.randint(20, (lengths[n % len(lengths)],), generator=random(100 * k + n))
            mask = torch.ones_like(words)
            self.items.append({"input_ids": words, "attention_mask": mask, "labels": words.sum() % 3})

    def __len__(self):
        return len(self.items)

    def __getitem__(self, place):
        return self.items[place]


def logits_loss(output, labels):
    return F.cross_entropy(output.logits, labels)


def named_items() -> Case:
    clients = [afo.Client(Texts(k), Texts(k + 50)) for k in range(CLIENTS)]
    problem = afo.Problem(Classifier, logits_loss, clients=clients)
    return Case(problem, lambda model, x: model(**x))


def padded(items):
    columns = {key: [item[key] for item in items] for key in items[0]}
    labels = torch.stack(columns.pop("labels"))
    return {key: pad_sequence(column, batch_first=True) for key, column in columns.items()}, labels


def loaded(data, k):
    """A loader as people have it; of a fifth of the samples it never draws."""
    return DataLoader(data, 6, sampler=SubsetRandomSampler(range(k, SAMPLES)), collate_fn=padded)


def of_all_lengths() -> Case:
    lengths = (3, 7, 5, 2, 6)
    clients = [afo.Client(loaded(Texts(k, lengths), k), Texts(k + 50, lengths), collate=padded) for k in range(CLIENTS)]
    problem = afo.Problem(Classifier, logits_loss, clients=clients)
    return Case(problem, lambda model, x: model(**x))


class Tagger(nn.Module):
    """A word's own tag, which depends on its neighbours; takes the whole dict."""

    def __init__(self):
        super().__init__()
        self.words, self.last = nn.Embedding(20, 6), nn.Conv1d(6, 3, 3, padding=1)

    def forward(self, batch):
        return self.last(self.words(batch["input_ids"]).transpose(1, 2))


def tagged(items):
    words = pad_sequence([item["input_ids"] for item in items], batch_first=True)
    tags = pad_sequence([item["input_ids"] % 3 for item in items], batch_first=True, padding_value=-100)
    return {"input_ids": words}, tags


def tags_of_all_lengths() -> Case:
    """Outputs whose shape differs from batch to batch, and a loss that is a mean over words."""
    clients = [afo.Client(Texts(k, (3, 7, 5)), Texts(k + 50, (4, 6)), collate=tagged) for k in range(CLIENTS)]
    return Case(afo.Problem(Tagger, F.cross_entropy, clients=clients), lambda model, x: model(x))


class Both(nn.Module):
    """A class and a number from nested inputs, as a tuple."""

    def __init__(self):
        super().__init__()
        self.kind, self.size = nn.Linear(5, 3), nn.Linear(5, 1)

    def forward(self, values, more):
        x = torch.cat([values, more["a"], more["b"][0]], 1)
        return self.kind(x), self.size(x)


def both_losses(output, target):
    return F.cross_entropy(output[0], target["kind"]) + F.mse_loss(output[1], target["size"])


def two_targets() -> Case:
    """Nested inputs and a dict of targets, from numpy, whose numbers are double."""

    def data(k):
        source = np.random.default_rng(k)
        x = source.normal(size=(SAMPLES, 5))
        inputs = x[:, :2], {"a": x[:, 2:4], "b": (x[:, 4:],)}
        return inputs, {"kind": x[:, :3].argmax(1), "size": x.sum(1, keepdims=True)}

    clients = [afo.Client(data(k), data(k + 50)) for k in range(CLIENTS)]
    return Case(afo.Problem(Both, both_losses, clients=clients), lambda model, x: model(*x))


CASES = {case.__name__: case for case in (image_and_age, named_items, of_all_lengths, tags_of_all_lengths, two_targets)}
