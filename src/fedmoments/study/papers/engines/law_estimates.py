"""Laws of estimates, by Monte Carlo: client means, and the covariance that is free with them.

Every draw is a class of one large federation, so that one pass of the package's own code estimates all of them. Shares,
errors and biases are in percent.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedmoments.core.gaussian import ClassGaussians, covariance_bias, expected_bias
from fedmoments.core.observations import Scalar
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.study.papers.engines.law_worlds import (
    Finding,
    Floats,
    Population,
    draw_classes,
    make_population,
)

__all__ = ["client_means", "errors", "free_covariance", "shift", "sweep_points"]

_MEANS = StatisticsSpec.of("client_means")
#: A free covariance is drawn this often at least, so that its mean square error is known to a few percent.
_FEWEST_DRAWS = 200
#: Which errors of the free covariance are told apart.
_BIAS, _ROOT_MEAN_SQUARE = "bias", "root mean square"


def _share(estimate: Floats, right: Floats) -> float:
    """Return the multiple of the second matrix that is nearest to the first, in percent: 100 where it is unbiased."""
    return 100.0 * float(np.sum(estimate * right) / np.sum(right * right))


def _distance(estimate: Floats, right: Floats) -> float:
    """Return the Frobenius norm of a difference, in percent of that of the second matrix."""
    return 100.0 * float(np.linalg.norm(estimate - right) / np.linalg.norm(right))


def client_means(settings: Mapping[str, Any], seed: int) -> Iterator[Finding]:
    """Proposition 1 of FedCOF: a client's class mean has the mean μ and the covariance Σ/n.

    Parameters
    ----------
    settings
        ``dim``, ``samples`` (numbers n of samples at the client) and ``draws`` (numbers of draws).
    seed
        Of population and draws.

    Yields
    ------
    Finding
        ``share`` of Σ that n·Var is, ``relative error`` of n·Var (curve ``measured``, and ``theory``: what so few draws
        leave), ``ratio to theory``, and ``offset`` of the mean in units of √(tr(Σ)/n).
    """
    rng = np.random.default_rng([seed, 1])
    population = make_population(rng, int(settings["dim"]))
    truth = population.covariance
    for samples in settings["samples"]:
        parts = draw_classes([population], [samples], max(settings["draws"]), StatisticsSpec(), rng)
        means = np.concatenate([ClassGaussians(stats).means for stats in parts])
        for draws in settings["draws"]:
            place: dict[str, Scalar] = {"samples": samples, "draws": draws}
            some = means[:draws]
            scaled = samples * np.cov(some, rowvar=False)
            theory = 100.0 * population.error_of_free(draws, samples)
            error = _distance(scaled, truth)
            yield place, "share", _share(scaled, truth)
            yield {**place, "curve": "measured"}, "relative error", error
            yield {**place, "curve": "theory"}, "relative error", theory
            yield place, "ratio to theory", error / theory
            offset = np.linalg.norm(some.mean(axis=0) - population.mean)
            yield place, "offset", 100.0 * float(offset / np.sqrt(np.trace(truth) / samples))


def _free(parts: Iterator[Statistics]) -> Iterator[tuple[Floats, float]]:
    """Yield the free covariance (d, d) of every class of many federations, and its degrees of freedom."""
    for stats in parts:
        for _, covariance, dof in ClassGaussians(stats, "free").class_covariances():
            yield covariance, dof


def free_covariance(settings: Mapping[str, Any], seed: int) -> Iterator[Finding]:
    """Proposition 2 of FedCOF: the free covariance is unbiased, with K_c − 1; with K − 1, only where K_c = K.

    Parameters
    ----------
    settings
        ``dim``, ``draws``, ``shape`` of the features, and ``cases``: a table of names and samples at every client.
    seed
        Of population and draws.

    Yields
    ------
    Finding
        ``share`` of Σ that the mean estimate is, its ``relative error`` ‖mean − Σ‖/‖Σ‖, and the ``share by formula``,
        for every ``case`` and ``divisor``.
    """
    rng = np.random.default_rng([seed, 2])
    population = make_population(rng, int(settings["dim"]), settings.get("shape", "gaussian"))
    truth, draws = population.covariance, int(settings["draws"])
    for case, sizes in settings["cases"].items():
        clients, held_by = len(sizes), sum(size > 0 for size in sizes)
        if held_by < 2:
            raise InputError(f"case '{case}': a free covariance needs two clients that hold the class, not {held_by}")
        total = np.zeros_like(truth)
        printed = np.zeros_like(truth)
        for covariance, dof in _free(draw_classes([population] * clients, sizes, draws, _MEANS, rng)):
            total += covariance
            printed += covariance * dof / (clients - 1)
        for divisor, estimate, formula in (
            ("K_c - 1", total / draws, 100.0),
            ("K - 1", printed / draws, 100.0 * (held_by - 1) / (clients - 1)),
        ):
            place: dict[str, Scalar] = {"case": case, "divisor": divisor}
            yield place, "share", _share(estimate, truth)
            yield place, "relative error", _distance(estimate, truth)
            yield place, "share by formula", formula


def shift(settings: Mapping[str, Any], seed: int) -> Iterator[Finding]:
    """Equation 24 of FedCOF: the bias of the free covariance where clients differ, and what our diagnostic says.

    Parameters
    ----------
    settings
        ``dim``, ``draws``, ``sizes`` (samples at every client), and ``cases``: a table of names and [shift of means,
        in standard deviations; spread of scales, as a share].
    seed
        Of populations and draws.

    Yields
    ------
    Finding
        Of every ``case``: ``bias`` of the trace, relative to that of Σ, with ``by`` = ``measured``, ``equation`` and
        ``diagnostic``; the ``difference`` of the mean estimate from Σ + equation, relative to the latter, with
        ``sigma`` = ``clients`` (Σ is the mean of the clients' covariances, weighted by samples), ``mixture`` (Σ is the
        covariance of all samples) or ``mixture, corrected``; that of the diagnostic with ``sigma`` = ``diagnostic``.
    """
    rng = np.random.default_rng([seed, 3])
    base = make_population(rng, int(settings["dim"]))
    sizes = np.asarray(settings["sizes"], np.int64)
    moves = rng.standard_normal((len(sizes), base.dim)) @ base.root.T
    stretch = rng.uniform(-1.0, 1.0, len(sizes))
    for case, (mean_shift, scale_shift) in settings["cases"].items():
        scales = 1.0 + scale_shift * stretch
        clients = [
            Population(base.mean + mean_shift * move, scale * base.root)
            for move, scale in zip(moves, scales, strict=True)
        ]
        yield from _one_shift(case, clients, sizes, int(settings["draws"]), rng)


def _one_shift(
    case: str, clients: Sequence[Population], sizes: Any, draws: int, rng: np.random.Generator
) -> Iterator[Finding]:
    means = np.stack([client.mean for client in clients])
    covariances = np.stack([client.covariance for client in clients])
    n, mean = int(sizes.sum()), np.average(means, axis=0, weights=sizes)
    within = np.average(covariances, axis=0, weights=sizes)
    between = ((sizes / n)[:, None] * (means - mean)).T @ (means - mean)
    free, seen = np.zeros_like(within), np.zeros(2)
    spec = StatisticsSpec.of("client_means", "class_norms")
    for stats in draw_classes(clients, sizes.tolist(), draws, spec, rng):
        free += sum(matrix for _, matrix, _ in ClassGaussians(stats, "free").class_covariances())
        bias = covariance_bias(stats)
        seen += len(bias.held_by) * np.array([bias.overall, 1.0])
    free /= draws
    place: dict[str, Scalar] = {"case": case}
    equation = expected_bias(sizes, means, covariances, mean, within)
    trace = float(np.trace(within))
    yield {**place, "by": "measured"}, "bias", 100.0 * float(np.trace(free - within)) / trace
    yield {**place, "by": "equation"}, "bias", 100.0 * float(np.trace(equation)) / trace
    # Of all samples together, Σ has the spread of the client means in it; the variance of their mean has not.
    mixture = within + between
    printed = mixture + expected_bias(sizes, means, covariances, mean, mixture)
    for sigma, expected in (
        ("clients", within + equation),
        ("mixture", printed),
        ("mixture, corrected", printed + between / (len(sizes) - 1)),
    ):
        yield {**place, "sigma": sigma}, "difference", _distance(free, expected)
    # The diagnostic divides the traces of the free and the exact estimate, whose means are these.
    ratio = float(np.trace(within + equation) / np.trace(within + between * n / (n - 1)))
    told_by = float(seen[0] / seen[1])
    yield {**place, "by": "diagnostic"}, "bias", 100.0 * told_by
    yield {**place, "by": "diagnostic by equation"}, "bias", 100.0 * (ratio - 1.0)
    yield {**place, "sigma": "diagnostic"}, "difference", 100.0 * abs(1.0 + told_by - ratio) / ratio


def sweep_points(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one table of settings for every point of the sweeps.

    Examples
    --------
    >>> base = {"clients": 20, "samples": 10, "dim": 8, "means": 100}
    >>> points = sweep_points({**base, "sweeps": {"clients": [2, 5]}})
    >>> [(point["sweep"], point["clients"], point["dim"]) for point in points]
    [('clients', 2, 8), ('clients', 5, 8)]
    """
    base = {key: value for key, value in settings.items() if key not in ("sweeps", "shapes")}
    for name in settings["sweeps"]:
        if name not in ("clients", "samples", "dim"):
            raise UnknownNameError("sweep of the free covariance", name, ("clients", "samples", "dim"))
    return [
        {**base, "sweep": name, name: value, "shape": shape}
        for name, values in settings["sweeps"].items()
        for shape in settings.get("shapes", {}).get(name, ["gaussian"])
        for value in values
    ]


def errors(settings: Mapping[str, Any], seed: int) -> Iterator[Finding]:
    """Bias and root mean square error of the free covariance at one number of clients, samples and dimensions.

    Parameters
    ----------
    settings
        A point of :func:`sweep_points`: ``sweep``, ``clients`` K, ``samples`` n, ``dim`` d, ``shape``, and ``means``:
        how many degrees of freedom, draws × (K − 1), the bias is known from.
    seed
        Of population and draws.

    Yields
    ------
    Finding
        ``relative error`` ‖·‖/‖Σ‖ with ``error`` = ``bias`` (of the mean over draws) or ``root mean square``, and
        ``curve`` = ``measured`` or ``theory``; for a bias, theory is what chance leaves of so many draws. ``ratio to
        theory`` of the two, and the ``share`` of Σ that the mean estimate is.
    """
    clients, samples, dim = (int(settings[key]) for key in ("clients", "samples", "dim"))
    rng = np.random.default_rng([seed, 4, clients, samples, dim])
    population = make_population(rng, dim, settings["shape"])
    truth = population.covariance
    draws = max(_FEWEST_DRAWS, -(-int(settings["means"]) // (clients - 1)))
    total, square = np.zeros_like(truth), 0.0
    for covariance, _ in _free(draw_classes([population] * clients, [samples] * clients, draws, _MEANS, rng)):
        total += covariance
        square += float(np.sum((covariance - truth) ** 2))
    theory = 100.0 * population.error_of_free(clients, samples)
    place = {key: settings[key] for key in ("sweep", "clients", "samples", "dim", "shape")}
    measured = {
        _BIAS: _distance(total / draws, truth),
        _ROOT_MEAN_SQUARE: 100.0 * np.sqrt(square / draws / np.sum(truth**2)),
    }
    for error, by_theory in ((_BIAS, theory / np.sqrt(draws)), (_ROOT_MEAN_SQUARE, theory)):
        yield {**place, "error": error, "curve": "measured"}, "relative error", float(measured[error])
        yield {**place, "error": error, "curve": "theory"}, "relative error", float(by_theory)
        yield {**place, "error": error}, "ratio to theory", float(measured[error] / by_theory)
    yield place, "share", _share(total / draws, truth)
