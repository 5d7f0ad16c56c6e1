"""What can be simulated by name: heads, which are fitted from statistics, and baselines, for comparison.

Features behind a public random projection: fewer dimensions, fewer bytes, some accuracy (GH-OFL, Table 8).

All clients draw the same Gaussian matrix from the seed of the run, so that the spread over seeds holds the luck of the
projection, too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedmoments.core.heads import Head, head_names, make_head, presets
from fedmoments.core.heads.choosing import labelled
from fedmoments.core.heads.registry import label_of
from fedmoments.core.linalg import blocks
from fedmoments.core.maps import FeatureMap
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.samples import Split
from fedmoments.samples.features import Features, Samples
from fedmoments.study.baselines import Baseline, baseline_names, baselines, make_baseline

__all__ = [
    "FULL",
    "Method",
    "all_names",
    "choose_methods",
    "map_features",
    "parse_projection",
    "require_head",
    "standard_heads",
]


#: The word for features as they are.
FULL = "full"


def parse_projection(word: str) -> int | None:
    """Read ``full`` (None) or a number of dimensions.

    Examples
    --------
    >>> parse_projection("full"), parse_projection("128")
    (None, 128)
    """
    if word == FULL:
        return None
    if not (word.isascii() and word.isdigit() and int(word)):
        raise InputError(f"a projection is typed as full or as a number of dimensions from 1, not '{word}'")
    return int(word)


def map_features(features: Features, split: Split, feature_map: FeatureMap) -> Features:
    """Return features behind a map, each client's mapped by itself, as it does in a deployed federation.

    A product of more rows rounds differently in the last bit, so that mapping everybody's samples at once would give
    other statistics in fixed point. What nobody holds is 0.

    Parameters
    ----------
    features, split
        Everybody's samples, and who holds what.
    feature_map
        Public, the same for all.

    Examples
    --------
    >>> from fedmoments.core.maps import Normalize
    >>> part = Samples(np.array([[3.0, 4.0], [0.0, 2.0]]), np.array([0, 1]))
    >>> split = Split(np.array([0, -1]), n_clients=1, scheme="by hand", why="an example")
    >>> map_features(Features("toy", 2, part, part), split, Normalize()).train.X
    array([[0.6, 0.8], [0. , 0. ]])
    """
    train, test = features.train, features.test
    width = feature_map.output_dim(features.dim)
    Z = np.zeros((len(train), width))
    for mine in split:
        for block in blocks(len(mine)):
            Z[mine[block]] = feature_map(train.X[mine[block]])
    # Test samples keep their type, in which classifiers score them.
    T = np.zeros((len(test), width), test.X.dtype if test.X.dtype == np.float32 else np.float64)
    for block in blocks(len(test)):
        T[block] = feature_map(test.X[block])
    return replace(features, train=Samples(Z, train.y), test=Samples(T, test.y), public_map=None)


Method = Head | Baseline


def standard_heads() -> tuple[str, ...]:
    """Return all heads but those with a feature map of their own, which are slow at their papers' sizes.

    Examples
    --------
    >>> "fedcof" in standard_heads(), "fed3r-rf" in standard_heads()
    (True, False)
    """
    return tuple(name for name in head_names() if not make_head(name).has_own_map)


def all_names(words: Iterable[str]) -> tuple[str, ...]:
    """Return names, each once; ``all`` stands for all heads that share one upload, ``baselines`` for all baselines.

    Examples
    --------
    >>> all_names(["gh-lda", "fedcof", "gh-lda"])
    ('gh-lda', 'fedcof')
    """
    several = {"all": standard_heads, "baselines": baseline_names}
    return tuple(dict.fromkeys(name for word in words for name in (several[word]() if word in several else (word,))))


def require_head(name: str) -> None:
    """Refuse the name of a baseline where only a head will do.

    Examples
    --------
    >>> require_head("gh-lda")
    """
    if name in baseline_names() and name not in head_names():
        raise InputError(
            f"'{name}' is a baseline, for comparison in simulations only: what its clients send does not add up, so "
            "that no federation collects it. Run it with 'fedmoments simulate', or choose a head here"
        )


def choose_methods(methods: Iterable[str | Method], hyper: Mapping[str, Mapping[str, Any]]) -> dict[str, Method]:
    """Return heads and baselines by name, each with its hyper-parameters; those given as they are have their own.

    Examples
    --------
    >>> choose_methods(["fedncm"], {})
    {'fedncm': NearestMean(metric='cosine')}
    >>> choose_methods(["fedcov"], {})
    Traceback (most recent call last):
    fedmoments.errors.UnknownNameError: unknown head 'fedcov': did you mean 'fedcof'? ...
    """
    by_name: dict[str, str | Method] = labelled([methods] if isinstance(methods, str) else methods, hyper, _label)
    made = {
        name: _make(method, hyper.get(method, {})) if isinstance(method, str) else method
        for name, method in by_name.items()
    }
    for name, method in made.items():
        _check_needs(name, method)
    return made


def _check_needs(name: str, method: Method) -> None:
    """Refuse a head that cannot say what it needs: nothing is measured, nor priced, without that."""
    if isinstance(method, Head):
        try:
            method.needs  # noqa: B018
        except Exception as error:
            raise InputError(
                f"the head '{name}' cannot say which statistics it needs: its 'needs' raised "
                f"{type(error).__name__}: {error}"
            ) from error


def _label(method: Method) -> str:
    return label_of(presets(), method) if isinstance(method, Head) else label_of(baselines(), method)


def _make(name: str, hyper: Mapping[str, Any]) -> Method:
    if name in head_names():
        return make_head(name, **hyper)
    if name in baseline_names():
        return make_baseline(name, **hyper)
    raise UnknownNameError("head", name, [*head_names(), *baseline_names()])
