"""Short texts as numbers of words, and a small Transformer for each site.

python examples/text.py
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import allforone as afo

WORDS = {
    word: number
    for number, word in enumerate(
        ["<pad>", "the", "film", "food", "was", "good", "bad", "great", "dull", "cold", "warm", "not"]
    )
}
GOOD = {"film": ["good", "great"], "food": ["good", "warm"]}
BAD = {"film": ["bad", "dull"], "food": ["bad", "cold"]}
LONGEST = 6


class Reader(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORDS), width, padding_idx=0)
        self.places = nn.Parameter(torch.zeros(LONGEST, width))
        self.layer = nn.TransformerEncoderLayer(width, nhead=2, dim_feedforward=32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.words(tokens) + self.places).mean(1))


def reviews(about: str, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Invented sentences such as "the film was not dull", and whether they praise."""
    tokens, labels = torch.zeros(count, LONGEST, dtype=torch.long), torch.zeros(count, dtype=torch.long)
    for row in range(count):
        praise, negated, which = torch.randint(2, (3,), generator=generator).tolist()
        word = (GOOD if praise != negated else BAD)[about][which]
        sentence = ["the", about, "was", *(["not"] if negated else []), word]
        tokens[row, : len(sentence)] = torch.tensor([WORDS[spoken] for spoken in sentence])
        labels[row] = praise
    return tokens, labels


def main(rounds: int = 20) -> afo.Trained:
    random = torch.Generator().manual_seed(0)
    clients = [
        afo.Client(reviews(about, 40, random), reviews(about, 40, random), name=f"{about} {number}")
        for about in ("film", "food")
        for number in (1, 2)
    ]
    adam = partial(torch.optim.Adam, lr=0.01)
    return afo.train(Reader, clients, loss=F.cross_entropy, optimizer=adam, rounds=rounds, inner=5)


if __name__ == "__main__":
    result = main()
    print(result.metrics.filter(result.metrics["round"] == result.metrics["round"].max())["client", "accuracy"])
    print(result.why("film 1", "food 1"))
