"""The public names are pinned, documented and exemplified: adding or losing one is a decision."""

import importlib
import inspect
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pytest

import fedmoments
from fedmoments import errors

PINNED: dict[str, list[str]] = {
    "fedmoments": [
        "Accumulator",
        "Callback",
        "ClassGaussians",
        "Classifier",
        "FixedPoint",
        "Head",
        "Layout",
        "Ledger",
        "Moment",
        "Observation",
        "Preset",
        "RecursiveRidge",
        "Report",
        "Results",
        "Shrinkage",
        "SketchPlan",
        "Statistics",
        "StatisticsSpec",
        "TableMap",
        "TuningPlan",
        "covariance_bias",
        "diagnose",
        "draft_table",
        "fit",
        "head_names",
        "load",
        "load_statistics",
        "make_head",
        "measure",
        "measure_files",
        "measure_stream",
        "precision",
        "presets",
        "read_report",
        "register_baseline",
        "register_corruption",
        "register_encoder",
        "register_head",
        "register_moment",
        "register_optimiser",
        "register_privacy",
        "register_source",
        "register_split",
        "register_tracker",
        "save_statistics",
        "simulate",
        "spec_for",
        "table_map",
        "table_sums",
        "tune",
        "with_targets",
    ],
    "fedmoments.core.api": ["Clients", "fit", "measure", "spec_for"],
    "fedmoments.study.baselines": [
        "Baseline",
        "Upload",
        "baseline_names",
        "baselines",
        "make_baseline",
        "register_baseline",
    ],
    "fedmoments.core.classifier": [
        "Classifier",
        "DiagonalClassifier",
        "EnsembleClassifier",
        "LinearClassifier",
        "LowRankClassifier",
        "MixtureClassifier",
        "MultiLabel",
        "QuadraticClassifier",
        "Regression",
        "TargetModel",
        "load",
        "load_bytes",
        "target_matrix",
    ],
    "fedmoments.core.diagnostics": [
        "Caution",
        "Conditioning",
        "Diagnostics",
        "FisherCurve",
        "Gaussianity",
        "Holdings",
        "NEEDS",
        "Neighbours",
        "Spectrum",
        "Tail",
        "Unknown",
        "diagnose",
        "fisher_curve",
        "gaussianity",
        "holdings_of",
        "nearest_classes",
        "spectrum_of",
    ],
    "fedmoments.errors": [
        "ClientsPooledError",
        "DataWarning",
        "DeploymentError",
        "FedMomentsError",
        "FileFormatError",
        "FitWarning",
        "FixedPointOverflowError",
        "InputError",
        "LedgerError",
        "MergeError",
        "MissingExtraError",
        "MissingMomentError",
        "MissingWeightsError",
        "NotEnoughDataError",
        "OwnDataError",
        "PolicyError",
        "PrivacyError",
        "RefusedError",
        "UnknownNameError",
    ],
    "fedmoments.samples.corruptions": [
        "corrupt",
        "corrupt_samples",
        "corruption_names",
        "families",
        "register_corruption",
    ],
    "fedmoments.federation": ["Terms"],
    "fedmoments.core.costs": [
        "Cost",
        "PayloadSize",
        "RoundsToSee",
        "client_flops",
        "expected_flops",
        "expected_participations",
        "expected_rounds",
        "floats_of",
        "flops_of",
        "head_flops",
        "iterative_cost",
        "kibibytes",
        "known_methods",
        "megabytes",
        "one_shot_cost",
        "rounds_without_replacement",
        "simulate_rounds",
    ],
    "fedmoments.federation.evaluation": ["Calibration", "Confusion", "Evaluation", "LocalEvaluation", "N_BINS"],
    "fedmoments.federation.outbox": ["LEFT", "Newest", "Outbox", "Refusal"],
    "fedmoments.federation.store": [
        "Batch",
        "Contributor",
        "Enrolled",
        "Entry",
        "FederationStore",
        "Receipt",
        "Status",
        "Verification",
        "Waiting",
    ],
    "fedmoments.files": [
        "FORMAT",
        "Header",
        "pack_tensors",
        "read_tensors",
        "unpack_tensors",
        "write_tensors",
        "write_whole",
    ],
    "fedmoments.core.gaussian": [
        "ClassGaussians",
        "CovarianceBias",
        "CovarianceSource",
        "DiagonalScatter",
        "FisherClasses",
        "FisherSubspace",
        "GaussianSamples",
        "MatrixScatter",
        "Pooling",
        "RowScatter",
        "SOURCES",
        "Scatter",
        "Shrinkage",
        "SketchReservoir",
        "SketchScatter",
        "covariance_bias",
        "covariance_source",
        "expected_bias",
        "recompress",
        "require",
    ],
    "fedmoments.core.heads": ["Head", "Preset", "head_names", "make_head", "presets", "register_head"],
    "fedmoments.core.linalg": [
        "BLOCK_ROWS",
        "add_gram",
        "add_packed",
        "blocks",
        "gcv_ridge",
        "least_eigenvalue",
        "low_rank_factor",
        "lower_factor",
        "new_gram",
        "pack_symmetric",
        "packed_diagonal",
        "packed_size",
        "packed_trace",
        "solve_definite",
        "solve_positive",
        "solve_rows_plus_ridge",
        "symmetrize_upper",
        "unpack_symmetric",
        "unpacked_dim",
    ],
    "fedmoments.core.maps": [
        "Categories",
        "Chain",
        "Clip",
        "Directions",
        "FeatureMap",
        "FeatureShape",
        "Identity",
        "Lengths",
        "Normalize",
        "Numbers",
        "Offset",
        "Power",
        "RandomFourier",
        "RandomProjection",
        "ReluBeside",
        "ReluResidual",
        "TableMap",
        "compose",
        "from_description",
        "known_kinds",
        "median_bandwidth",
        "named_map",
        "recommended_map",
        "table_of",
    ],
    "fedmoments.federation.deploy": [
        "ConfigValue",
        "Control",
        "FlowerHome",
        "Process",
        "RunStatus",
        "SuperExec",
        "SuperLink",
        "SuperNode",
    ],
    "fedmoments.federation.keys": [
        "Authority",
        "Card",
        "ClientKeys",
        "load_identity",
        "make_authority",
        "make_client",
        "read_card",
    ],
    "fedmoments.wire": [
        "Agreement",
        "Contribution",
        "Header",
        "IdentityKey",
        "PublicKey",
        "Reason",
        "Withheld",
        "check_client_id",
        "decode",
        "encode",
        "pack_bundle",
        "read_header",
        "unpack_bundle",
    ],
    "fedmoments.privacy": [
        "Agreed",
        "DenseLayout",
        "Finding",
        "LeakReport",
        "Obfuscation",
        "Protection",
        "parse_obfuscation",
        "privacy_card",
    ],
    "fedmoments.privacy.dp": [
        "Accountant",
        "MeansForm",
        "NoisePlan",
        "Released",
        "Spending",
        "Stream",
        "SumsForm",
        "check_rules",
        "clip_client",
        "discrete_gaussian",
        "epsilon_of",
        "finish",
        "least_ratio",
        "noise_vector",
        "parse_budget",
        "plan",
        "release",
        "release_client_means",
        "repair",
        "require_additive",
        "require_client_means",
        "shares_of",
    ],
    "fedmoments.privacy.robust": [
        "ATTACKS",
        "Attack",
        "Influence",
        "Suspicion",
        "cap_reason",
        "inconsistencies",
        "influences",
        "parse_attack",
        "poison",
        "robust_record",
        "suspect_rows",
        "suspects",
        "without_rows",
    ],
    "fedmoments.privacy.secure": [
        "Context",
        "HeldReports",
        "Helper",
        "HelperKey",
        "Leader",
        "OVERHEAD_BYTES",
        "Report",
        "SumRequest",
        "check_helper_key",
        "make_report",
        "read_report",
    ],
    "fedmoments.study.papers": [
        "Experiment",
        "Observation",
        "PAPERS",
        "Request",
        "World",
        "experiment",
        "experiments",
        "find",
        "run_experiment",
    ],
    "fedmoments.core.statistics": [
        "Accumulator",
        "FixedPoint",
        "Layout",
        "Ledger",
        "MOMENTS",
        "MeanRows",
        "Moment",
        "SketchPlan",
        "Sketches",
        "Statistics",
        "StatisticsSpec",
        "load_statistics",
        "register_moment",
        "save_statistics",
    ],
    "fedmoments.tuning": [
        "FeatureEngine",
        "OPTIMISERS",
        "Prices",
        "RoundPoint",
        "STAGES",
        "Start",
        "Tuned",
        "TunedHead",
        "TuningPlan",
        "choose_temperature",
        "random_start",
        "run_rounds",
        "start_from",
        "tune",
    ],
}


def public_objects() -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, object) of every public class and function, and of every public member of a class."""
    for room in PINNED:
        module = importlib.import_module(room)
        for name in module.__all__:
            thing = getattr(module, name)
            if not (inspect.isclass(thing) or inspect.isfunction(thing)):
                continue
            if not thing.__module__.startswith("fedmoments"):  # a type that was given a name
                continue
            yield f"{room}.{name}", thing
            members = vars(thing).items() if inspect.isclass(thing) else ()
            for member, value in members:
                kinds = (property, cached_property, classmethod, staticmethod)
                if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, kinds)):
                    yield f"{room}.{name}.{member}", getattr(thing, member)


@pytest.mark.parametrize("room", PINNED)
def test_public_names_are_pinned(room: str) -> None:
    module = importlib.import_module(room)
    assert sorted(module.__all__) == PINNED[room]
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert hasattr(module, name)
    assert (module.__doc__ or "").strip()


def test_every_public_class_function_and_method_has_a_docstring() -> None:
    checked = dict(public_objects())
    assert len(checked) > 150
    undocumented = [name for name, thing in checked.items() if not (inspect.getdoc(thing) or "").strip()]
    assert undocumented == []


@pytest.mark.parametrize("name", fedmoments.__all__)
def test_what_the_package_exports_comes_with_an_example(name: str) -> None:
    text = inspect.getdoc(getattr(fedmoments, name)) or ""
    assert "Examples\n--------" in text
    assert ">>>" in text


def test_every_error_is_in_the_tree_that_the_module_draws() -> None:
    for name in errors.__all__:
        error = getattr(errors, name)
        assert issubclass(error, (errors.FedMomentsError, UserWarning))
        assert name in (errors.__doc__ or "")
    assert issubclass(errors.InputError, ValueError)
    assert issubclass(errors.ClientsPooledError, errors.MissingMomentError)
    assert issubclass(errors.FileFormatError, errors.InputError)
    assert issubclass(errors.MissingExtraError, ImportError)


def test_public_functions_are_fully_annotated() -> None:
    for name, thing in public_objects():
        if inspect.isfunction(thing):
            assert "return" in thing.__annotations__, name


def test_public_signatures_are_short_enough_to_read() -> None:
    """What Jupyter shows on fm.fit? names types by their aliases: spelled out, ArrayLike alone takes 500 characters."""
    shown: dict[str, str] = {}
    for name in fedmoments.__all__:
        value = getattr(fedmoments, name)
        members = {f"{name}.{key}": each for key, each in vars(value).items()} if inspect.isclass(value) else {}
        for path, each in {name: value, **members}.items():
            called = getattr(each, "__func__", each)
            if callable(called) and not path.split(".")[-1].startswith("_"):
                shown[path] = str(inspect.signature(called))
    assert len(shown) > 100
    assert not [path for path, text in shown.items() if "_typing" in text or "typing.Union" in text]
    assert not [path for path, text in shown.items() if len(text) > (800 if path[0].isupper() else 520)]


def test_a_former_name_warns_and_gives_what_it_is_called_now() -> None:
    with pytest.warns(DeprecationWarning, match=r"fedmoments\.tune_head is called fedmoments\.tune now"):
        former = fedmoments.tune_head
    assert former is fedmoments.tune
    assert "tune_head" not in dir(fedmoments)
