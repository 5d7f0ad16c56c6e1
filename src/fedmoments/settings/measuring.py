"""What a client measures of its samples: which moments, behind which maps, in which numbers."""

from dataclasses import dataclass

from fedmoments.settings.option import option

__all__ = ["Computing", "MapSettings", "MeasureSettings", "RoundingSettings"]


@dataclass(frozen=True)
class Computing:
    """In which numbers the large products are computed."""

    precision: str = option(
        "float64",
        "float64, or float32 for the large products (grams, FedCOF's scatter): centred blocks summed in "
        "float64, about twice as fast.",
        metavar="float64|float32",
        group="Heads",
    )


@dataclass(frozen=True)
class MeasureSettings(Computing):
    """What is to be measured."""

    head: tuple[str, ...] = option(
        (), "Measure the fewest moments that serve this head; may be repeated.", kind="names", metavar="HEAD"
    )
    moments: tuple[str, ...] = option((), "Measure these moments too: gram,client_means,…", metavar="MOMENT,…")
    means_per_client: int = option(1, "Means to send per class (client_means).", metavar="N")
    budget: str | None = option(
        None,
        "means, means/8, gram, 50KB …: bytes that a client's means and scatter sketch may take, for heads on "
        "sketches; the client picks precision, projection and rank (see docs/sketch.md).",
        metavar="BYTES",
    )
    feature_map: str = option(
        "none",
        "none, power (√x, then unit length), length (unit length), or auto (what signs, skewness and lengths of the "
        "features call for; the chosen map is printed: all clients must use the same).",
        "--map",
        metavar="MAP",
    )
    project: int | None = option(None, "Then apply a random projection to K dimensions.", metavar="K")


@dataclass(frozen=True)
class MapSettings:
    """Maps of features before they are measured, besides those that are requested by name."""

    normalize: bool = option(False, "Scale every sample to unit norm first.", "--normalize")
    fourier: int | None = option(None, "Then map to D random Fourier features (fed3r-rf).", metavar="D")
    bandwidth: float | None = option(None, "Kernel width of --fourier, in feature units.")
    seed: int = option(0, "Public seed of the maps and of several means per class.")


@dataclass(frozen=True)
class RoundingSettings:
    """Whether sums are rounded to fixed point, and within which bounds."""

    fixed_point: bool = option(False, "Round to int64 fixed point: sums exact in any order.", "--fixed-point")
    norm_bound: float | None = option(None, "Largest norm of a sample (--fixed-point).")
    max_samples: int | None = option(None, "Upper bound on the samples of the whole federation (--fixed-point).")
