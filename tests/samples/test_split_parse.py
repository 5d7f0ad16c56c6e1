"""Splits as they are typed."""

from pathlib import Path

import numpy as np
import pytest

from fedmoments.errors import FileFormatError, InputError, UnknownNameError
from fedmoments.samples import (
    SCHEMES,
    Split,
    by_domain,
    by_id,
    classes_per_client,
    dirichlet_per_class,
    dirichlet_per_client,
    iid,
    parse_split,
    quantity_skew,
)

Y = np.arange(200) % 5
DOMAINS = np.array(["photo", "sketch"])[np.arange(200) % 2]
IDS = np.arange(200) // 9


def expected(text: str) -> Split:
    return {
        "dirichlet:0.1": lambda: dirichlet_per_class(Y, 8, 0.1, 3),
        "dirichlet-class:0.10": lambda: dirichlet_per_class(Y, 8, 0.1, 3),
        "dirichlet-client:1e-1": lambda: dirichlet_per_client(Y, 8, 0.1, 3),
        "dirichlet:0": lambda: classes_per_client(Y, 8, 1, 3),
        "classes:2": lambda: classes_per_client(Y, 8, 2, 3),
        "iid": lambda: iid(200, 8, 3),
        "quantity:0.5": lambda: quantity_skew(200, 8, 0.5, 3),
        "quantity:0.5:4": lambda: quantity_skew(200, 8, 0.5, 3, min_size=4),
        "domain": lambda: by_domain(DOMAINS, 1, 3),
        "domain:4": lambda: by_domain(DOMAINS, 4, 3),
        "id": lambda: by_id(IDS),
    }[text]()


@pytest.mark.parametrize(
    "text",
    [
        "dirichlet:0.1",
        "dirichlet-class:0.10",
        "dirichlet-client:1e-1",
        "dirichlet:0",
        "classes:2",
        "iid",
        "quantity:0.5",
        "quantity:0.5:4",
        "domain",
        "domain:4",
        "id",
    ],
)
def test_a_typed_split_is_the_function_s_split_under_the_typed_name(text: str) -> None:
    n_clients = None if text in {"domain", "id"} else 8
    split = parse_split(text).apply(Y, n_clients, 3, domains=DOMAINS, ids=IDS)
    assert split == expected(text).renamed(text)


@pytest.mark.parametrize("name", [name for name in SCHEMES if name not in {"file", "flower", "sizes"}])
def test_functions_name_their_split_so_that_it_parses_again(name: str) -> None:
    text = {"classes": "classes:2", "quantity": "quantity:0.25:3"}.get(name, name)
    text += ":0.012345678" if "dirichlet" in name else ""
    n_clients = None if name in {"domain", "id"} else 8
    recipe = parse_split(text)
    split = recipe.apply(Y, n_clients, domains=DOMAINS, ids=IDS)
    assert parse_split(split.scheme) == recipe


def test_the_table_is_sorted_and_names_its_entries() -> None:
    assert list(SCHEMES) == sorted(SCHEMES)
    for name, scheme in SCHEMES.items():
        assert scheme.name == name
        assert scheme.usage.startswith(name)
        assert scheme.summary


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'dirichlet'"):
        parse_split("dirichlt:0.1")
    for text in ("", "IID", ":0.1"):
        with pytest.raises(UnknownNameError, match="unknown split"):
            parse_split(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dirichlet", r"has 0 parameters after colons. Type dirichlet:ALPHA\."),
        ("dirichlet:", "ALPHA must be a number, but is ''"),
        ("dirichlet:abc", r"ALPHA must be a number, but is 'abc'. Type dirichlet:ALPHA\."),
        ("dirichlet:-1", "finite number of at least 0, but is -1.0"),
        ("dirichlet-client:nan", "finite number of at least 0, but is nan"),
        ("dirichlet:inf", "finite number"),
        ("dirichlet:0.1:2", "has 2 parameters"),
        ("quantity:0", "above 0"),
        ("quantity:1:-1", "MIN_SIZE must be a whole number of at least 0"),
        ("classes:0", "CLASSES must be a whole number of at least 1, but is 0"),
        ("classes:1.5", "CLASSES must be a whole number, but is '1.5'"),
        ("domain:0", r"Type domain\[:CLIENTS_PER_DOMAIN\]"),
        ("iid:3", "Type iid"),
        ("id:3", "Type id"),
    ],
)
def test_a_wrong_parameter_is_refused_with_what_to_type(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as error:
        parse_split(text)
    assert f"split '{text}'" in str(error.value)


def test_what_a_scheme_needs_and_does_not_get_is_said() -> None:
    with pytest.raises(InputError, match="split 'iid' needs the number of clients: give n_clients"):
        parse_split("iid").apply(Y)
    with pytest.raises(InputError, match="split 'domain' needs the domains of the samples"):
        parse_split("domain").apply(Y)
    with pytest.raises(InputError, match="split 'id' needs the ids of the samples"):
        parse_split("id").apply(Y)
    with pytest.raises(InputError, match="ids must be one a sample, 200, but are 2"):
        parse_split("id").apply(Y, ids=[1, 2])
    with pytest.raises(InputError, match="n_clients must be a whole number of at least 1, but is 0"):
        parse_split("iid").apply(Y, 0)


def test_a_number_of_clients_that_the_data_contradict_is_refused() -> None:
    assert parse_split("domain:4").apply(Y, 8, domains=DOMAINS).n_clients == 8
    with pytest.raises(InputError, match=r"gives 2 clients on these data, but 8 were requested: .*--clients\) out"):
        parse_split("domain").apply(Y, 8, domains=DOMAINS)


def test_a_split_that_was_written_is_read_by_its_path_whatever_the_seed(tmp_path: Path) -> None:
    path = tmp_path / "ten:of.split"  # a colon in a path is not a parameter
    made = iid(200, 8, 3)
    made.save(path)
    for text in (f"file:{path}", str(path)):
        recipe = parse_split(text)
        assert recipe.finds_clients
        for seed in (0, 1):
            split = recipe.apply(Y, seed=seed)
            assert split.digest() == made.digest()
            assert split.scheme == f"file:{path}"
    with pytest.raises(InputError, match="gives 8 clients on these data, but 9 were requested"):
        parse_split(str(path)).apply(Y, n_clients=9)


def test_a_split_of_other_data_is_refused(tmp_path: Path) -> None:
    iid(200, 8, 3).save(tmp_path / "s")
    with pytest.raises(InputError, match="divides 200 samples, but these data have 199 training samples"):
        parse_split(f"file:{tmp_path / 's'}").apply(Y[:-1])
    (tmp_path / "s").write_bytes(b"something else")
    with pytest.raises(FileFormatError):
        parse_split(f"file:{tmp_path / 's'}").apply(Y)
    with pytest.raises(InputError, match="there is no file nowhere: 'fedmoments split DATA --out PATH' writes one"):
        parse_split("file:nowhere")


def test_sizes_of_a_file_are_the_clients_sizes(tmp_path: Path) -> None:
    path = tmp_path / "sizes.csv"
    sizes = np.random.default_rng(0).integers(0, 60, size=9)
    path.write_text("num_images\n" + "".join(f"{size}\n" for size in sizes))
    y = np.zeros(int(sizes.sum()), int)
    split = parse_split(f"sizes:{path}").apply(y, None, 5)
    assert split.sizes.tolist() == sizes.tolist(), "as many samples as the file counts"
    assert split.scheme == f"sizes:{path}"
    half = parse_split(f"sizes:{path}").apply(y[::2], None, 5).sizes
    assert half.sum() == len(y[::2])
    assert np.abs(half - sizes / 2).max() <= 1, "in proportion, where there are fewer"


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "not all of them 0"), ("size\n0\n0\n", "not all of them 0"), ("3\nmany\n", "line 2 .* is 'many'"),
     ("n\n-3\n", "line 2 .* is '-3'"), ("9" * 40, "line 1 .* whole number")],
)  # fmt: skip
def test_a_file_without_sizes_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "sizes").write_text(text)
    with pytest.raises(InputError, match=message):
        parse_split(f"sizes:{tmp_path / 'sizes'}").apply(Y)
    with pytest.raises(InputError, match="should have the size of a client on each line"):
        parse_split("sizes:nowhere")
