"""Flower's partitioners where a split is expected."""

import numpy as np
import pytest

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.samples import Split, by_id, parse_split, split_from_partitioner

flower = pytest.importorskip("flwr_datasets.partitioner")

Y = np.repeat(np.arange(5), 200)
IDS = np.array([f"user{i % 7}" for i in range(1000)])


def whole(split: Split) -> bool:
    return not len(split.dropped) and int(split.sizes.sum()) == len(Y)


def test_iid_is_iid_although_labels_are_sorted() -> None:
    split = split_from_partitioner(flower.IidPartitioner(10), Y)
    assert whole(split)
    assert split.sizes.tolist() == [100] * 10
    assert split.cells(Y, 5).toarray().min() > 5


def test_dirichlet_is_skewed_and_what_it_warns_of_is_noted() -> None:
    split = split_from_partitioner(flower.DirichletPartitioner(10, "label", 0.1, min_partition_size=0, seed=1), Y)
    assert whole(split)
    assert split.scheme == "flower:DirichletPartitioner"
    assert (split.cells(Y, 5).toarray() == 0).sum() > 10
    warned = split_from_partitioner(flower.DirichletPartitioner(10, "label", 0.5, min_partition_size=50, seed=1), Y)
    assert any("min_partition_size" in note for note in warned.notes)


def test_pathological_gives_each_client_its_classes() -> None:
    split = split_from_partitioner(flower.PathologicalPartitioner(10, "label", 2), Y)
    assert whole(split)
    assert ((split.cells(Y, 5).toarray() > 0).sum(axis=1) == 2).all()


def test_shards_and_linear_sizes() -> None:
    assert whole(split_from_partitioner(flower.ShardPartitioner(10, "label", num_shards_per_partition=2), Y))
    assert split_from_partitioner(flower.LinearPartitioner(4), Y).sizes.tolist() == [100, 200, 300, 400]


def test_natural_ids_are_the_split_by_id() -> None:
    split = split_from_partitioner(flower.NaturalIdPartitioner("client"), Y, ids=IDS)
    ours = by_id(IDS)
    assert split.names == ours.names
    np.testing.assert_array_equal(split.clients, ours.clients)


def test_samples_that_are_left_out_are_dropped_with_the_reason() -> None:
    split = split_from_partitioner(flower.SizePartitioner([10, 20]), Y)
    assert split.sizes.tolist() == [10, 20]
    assert split.why == "Flower's SizePartitioner left 970 of 1,000 samples out."


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="splits by 'user': it may be label"):
        split_from_partitioner(flower.NaturalIdPartitioner("user"), Y)
    assert split_from_partitioner(flower.NaturalIdPartitioner("user"), Y, columns={"user": IDS}).n_clients == 7
    with pytest.raises(InputError, match=r"two clients|divides columns"):
        split_from_partitioner(flower.VerticalEvenPartitioner(2), Y)
    used = flower.IidPartitioner(2)
    split_from_partitioner(used, Y)
    with pytest.raises(InputError, match="assigned only once"):
        split_from_partitioner(used, Y)


def test_a_typed_partitioner_takes_clients_and_seed_from_the_run() -> None:
    text = "flower:DirichletPartitioner(partition_by=label, alpha=0.5, min_partition_size=0)"
    recipe = parse_split(text)
    first, again, other = (recipe.apply(Y, 8, seed) for seed in (1, 1, 2))
    assert first.scheme == text
    assert first.n_clients == 8
    assert first == again
    assert first.digest() != other.digest()
    fixed = parse_split(
        "flower:PathologicalPartitioner(num_partitions=4, partition_by='label', num_classes_per_partition=3)"
    )
    assert fixed.apply(Y).n_clients == 4
    assert parse_split("flower:IidPartitioner").apply(Y, 3).n_clients == 3
    assert parse_split("flower:NaturalIdPartitioner(partition_by=client)").apply(Y, ids=IDS).n_clients == 7


@pytest.mark.parametrize(
    "text",
    [
        "flower:IidPartitioner(num_partitions=__import__('os').system('true'))",
        "flower:IidPartitioner(**{'num_partitions': 3})",
        "flower:IidPartitioner(3)",
        "flower:os.system(num_partitions=3)",
        "flower:IidPartitioner(",
        "flower:",
        "flower:[IidPartitioner]",
        "flower:(lambda: 1)(a=1)",
    ],
)
def test_nothing_but_a_name_and_literals_is_read(text: str) -> None:
    with pytest.raises(InputError, match="Type flower:CLASS"):
        parse_split(text)


def test_unknown_partitioners_and_parameters_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'IidPartitioner'"):
        parse_split("flower:IdPartitioner(num_partitions=2)").apply(Y)
    with pytest.raises(InputError, match="unexpected keyword argument 'alpha'"):
        parse_split("flower:IidPartitioner(num_partitions=2, alpha=1)").apply(Y)
    with pytest.raises(InputError, match="num_partitions"):
        parse_split("flower:IidPartitioner").apply(Y)
