"""The loop of `loop.py` as one call: every site has its own model, and those that are alike learn together."""

import torch.nn.functional as F
from sites import problem
from torch import nn, no_grad

import allforone as afo


def main(epochs=10):
    scores, sites = {}, problem().clients
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    result = afo.train(model, sites, loss=F.cross_entropy, lr=0.1, rounds=epochs, inner=5, batch_size=8)
    for site in sites:
        model, test = result.model(site.name), site.test.tensors
        with no_grad():
            scores[site.name] = (model(test[0]).argmax(1) == test[1]).float().mean().item()
    return scores


if __name__ == "__main__":
    print(main())
