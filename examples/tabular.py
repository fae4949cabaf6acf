"""A table with a column that names the site, as pandas reads it: one classifier per hospital, in scikit-learn's way.

python examples/tabular.py
"""

import numpy as np
import pandas as pd

import allforone as afo


def patients(seed: int = 0) -> pd.DataFrame:
    """Invented: in two of four hospitals the marker means the opposite. Replace it by pd.read_csv("patients.csv")."""
    random = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "hospital": random.choice(["Aarau", "Bern", "Chur", "Davos"], 400),
            "age": random.normal(60, 12, 400).round(),
            "marker": random.normal(0, 1, 400),
            "sex": random.choice(["f", "m"], 400),
        }
    )
    turned = table["hospital"].isin(["Chur", "Davos"])
    risk = (table["age"] - 60) / 12 + np.where(turned, -2, 2) * table["marker"] + random.normal(0, 0.5, 400)
    return table.assign(sick=risk > 0)


def main(rounds: int = 30) -> dict[str, float]:
    table = patients()
    features = pd.get_dummies(table[["age", "marker", "sex"]], dtype=float)
    train = np.arange(len(table)) % 2 == 0
    model = afo.AllForOneClassifier(rounds=rounds)
    model.fit(features[train], table["sick"][train], sites=table["hospital"][train])
    test = ~train
    return {
        hospital: model.score(features[test][here], table["sick"][test][here], sites=table["hospital"][test][here])
        for hospital in model.sites_
        for here in [table["hospital"][test] == hospital]
    }


if __name__ == "__main__":
    for hospital, accuracy in main().items():
        print(f"{hospital}: {100 * accuracy:.0f} % right")
