"""A model and a catalogue on every worker, and many tasks that score with them.

The model is a dict as one keeps it in a pickle: embeddings of more than a hundred
thousand words, the dict that numbers these, lists of them, and dicts of settings. The
client has it and scatters it to all workers, three times, as of one day after the
other. The catalogue is an array that a task made on one of the workers. Each task puts
together the words of some documents and finds what is nearest in the catalogue; the
answer is what was found and how near that is, by day and batch of documents.

`--gb` says how large a model's embeddings and the catalogue are, half of it each. They
are whole numbers in float32, small enough that every product is exact. Making them
takes about a tenth of the work.
"""

import argparse
from typing import Any

import numpy as np
import pandas as pd
from distributed import Client
from pipeline import Pipeline

VERSIONS, BATCHES = 3, 20
DOCUMENTS, WORDS = 16, 50
FEATURES = 256


def entries_of(options: argparse.Namespace) -> int:
    """Words, and items of the catalogue."""
    return max(100, round(options.gb * 1e9 / 2 / 4 / FEATURES))


def draw(entries: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.integers(-2, 3, (entries, FEATURES), dtype="i1").astype("f4")


def load_model(entries: int, version: int) -> dict[str, Any]:
    words = [f"word-{number}" for number in range(entries)]
    return {
        "embeddings": draw(entries, version),
        "numbers": {word: number for number, word in enumerate(words)},
        "ignored": words[version::10],
        "layers": [{"size": FEATURES, "weights": np.ones(FEATURES, "f4")}] * 2,
        "settings": {"version": version, "language": "en", "rates": [0.1, 0.01]},
    }


def score(batch: int, model: dict[str, Any], catalogue: np.ndarray) -> tuple[int, int]:
    """The sums of what is nearest to the documents, and of how near that is."""
    numbers, ignored = model["numbers"], set(model["ignored"])
    drawn = np.random.default_rng(batch).integers(0, len(numbers), (DOCUMENTS, WORDS))
    documents = np.zeros((DOCUMENTS, FEATURES), "f4")
    for document, words in zip(documents, drawn, strict=True):
        known = [f"word-{number}" for number in words]
        rows = [numbers[word] for word in known if word not in ignored]
        document += model["embeddings"][rows].sum(axis=0)
    for layer in model["layers"]:
        documents *= layer["weights"]
    near = documents @ catalogue.T
    nearest = near.argmax(axis=1)
    return int(nearest.sum()), int(near.max(axis=1).sum())


def compute(client: Client, options: argparse.Namespace) -> pd.DataFrame:
    entries = entries_of(options)
    catalogue = client.submit(draw, entries, VERSIONS)
    found = []
    for version in range(VERSIONS):
        # In a list, since of a dict each value would be scattered by itself.
        (model,) = client.scatter([load_model(entries, version)], broadcast=True)
        found += client.gather(
            client.map(score, range(BATCHES), model=model, catalogue=catalogue)
        )
    return answer(found)


def answer(found: list[tuple[int, int]]) -> pd.DataFrame:
    return pd.DataFrame(found, columns=["nearest", "near"])


def expected(options: argparse.Namespace) -> pd.DataFrame:
    entries = entries_of(options)
    catalogue = draw(entries, VERSIONS)
    return answer(
        [
            score(batch, model, catalogue)
            for version in range(VERSIONS)
            for model in [load_model(entries, version)]
            for batch in range(BATCHES)
        ]
    )


if __name__ == "__main__":
    Pipeline(__doc__, compute, expected, gb=0.25).main()
