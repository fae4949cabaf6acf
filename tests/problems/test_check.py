"""What bad input gets: a message that names the client and the remedy, before anything is computed."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

import allforone as afo

GOOD = (torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))


def train(bad, *, test=GOOD, loss=F.cross_entropy, model=None):
    clients = [afo.Client(GOOD, GOOD), afo.Client(bad, test, name="Lille")]
    return afo.train(model or nn.Linear(3, 2), clients, loss=loss, rounds=1)


def test_a_client_without_data_is_named():
    with pytest.raises(afo.InputError, match=r"client 1 \(Lille\), train data: no samples.*leave this client out"):
        train((torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)))


def test_a_client_without_test_data_is_named():
    with pytest.raises(afo.InputError, match=r"client 1 \(Lille\), test data: no samples"):
        train(GOOD, test=(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)))


def test_nan_in_the_data_is_named_with_its_sample():
    inputs = torch.zeros(4, 3)
    inputs[2, 1] = torch.nan
    with pytest.raises(afo.InputError, match=r"client 1 .*NaN or infinity in the inputs at sample 2"):
        train((inputs, GOOD[1]))


def test_clients_that_disagree_in_shape_are_named():
    with pytest.raises(afo.InputError, match=r"client 1 .*float32 \[5\].*client 0's are float32 \[3\]"):
        train((torch.zeros(4, 5), GOOD[1]))


def test_clients_that_disagree_in_dtype_are_named():
    with pytest.raises(afo.InputError, match=r"client 1 .*targets are int32 \[\].*client 0's are int64"):
        train((GOOD[0], torch.zeros(4, dtype=torch.int32)))


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
def test_labels_of_the_wrong_dtype_are_explained(dtype):
    wrong = (torch.zeros(4, 3), torch.zeros(4, dtype=dtype))
    with pytest.raises(afo.InputError, match=r"client 0, train data: loss\(model.*must be int64"):
        afo.train(nn.Linear(3, 2), [afo.Client(wrong, wrong)], loss=F.cross_entropy, rounds=1)


def test_regression_targets_that_would_be_broadcast_are_refused():
    wrong = (torch.randn(4, 3), torch.randn(4))
    with pytest.raises(afo.InputError, match="dtype and shape of the model's output"):
        afo.train(nn.Linear(3, 1), [afo.Client(wrong, wrong)], loss=F.mse_loss, rounds=1)


def test_a_loss_that_is_not_a_scalar_is_refused():
    with pytest.raises(afo.InputError, match="scalar"):
        train(GOOD, loss=lambda output, target: F.cross_entropy(output, target, reduction="none"))


def test_no_clients_and_nothing_to_train_are_refused():
    with pytest.raises(afo.InputError, match="no clients"):
        afo.train(nn.Linear(3, 2), [], loss=F.cross_entropy)
    with pytest.raises(afo.InputError, match="no parameters"):
        train(GOOD, model=nn.Identity())


@pytest.mark.parametrize(
    "options",
    [
        {"lr": -0.1},
        {"lr": 0.0},
        {"rounds": 0},
        {"inner": -1},
        {"batch_size": 0},
        {"fleet": "cloud"},
    ],
)
def test_arguments_out_of_range_are_named(options):
    with pytest.raises(afo.InputError, match=next(iter(options))):
        afo.train(nn.Linear(3, 2), [afo.Client(GOOD, GOOD)], loss=F.cross_entropy, **options)


X, Y = torch.randn(6, 3), torch.randint(2, (6,))


class Items(Dataset):
    def __init__(self, item, size=6):
        self.item, self.size = item, size

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        return self.item(i)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (lambda i: {"x": X[i], "y": Y[i]}, "call them 'labels'"),
        (lambda i: X[i], "no pair"),
        (lambda i: (object(), 1), "pair"),
        (lambda i: (X[i], "sick"), r"targets\[0\] is of type str"),
        (lambda i: (torch.zeros(3 + i % 2), 1), "alike in shape"),
    ],
)
def test_a_dataset_whose_items_do_not_fit_is_explained(item, said):
    with pytest.raises(afo.InputError, match=rf"client 0, train data: a batch of items .*cannot be made.*{said}"):
        afo.train(nn.Linear(3, 2), [afo.Client(Items(item), GOOD)], loss=F.cross_entropy, rounds=1)


@pytest.mark.parametrize(
    "test",
    [
        (torch.zeros(4, 5), GOOD[1]),
        (GOOD[0], torch.zeros(4)),
        (GOOD[0], torch.zeros(4, dtype=torch.int32)),
    ],
)
def test_test_data_are_checked_like_training_data(test):
    with pytest.raises(afo.InputError, match=r"client 1 \(Lille\), test data"):
        train(GOOD, test=test)


@pytest.mark.parametrize("fleet", ["stacked", "loop"])
def test_a_label_out_of_range_names_its_client(fleet):
    bad = (torch.randn(40, 3), torch.cat([torch.zeros(39), torch.full((1,), 7)]).long())
    clients = [afo.Client((X, Y), (X, Y)), afo.Client(bad, (X, Y))]
    with pytest.raises(afo.InputError, match="client 1, train data: sample 39, target 7"):
        afo.train(nn.Linear(3, 2), clients, loss=F.cross_entropy, rounds=9, fleet=fleet, algorithm=afo.Local())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"clients": [(X, Y)]}, r"clients\[0\] is a tuple: make it an afo.Client"),
        ({"algorithm": "local"}, "give an object such as"),
        ({"algorithm": afo.Local}, "give an object such as"),
        ({"lr": "0.1"}, "lr is '0.1'"),
        ({"smoothness": -1.0}, "smoothness is -1.0"),
        ({"metrics": {"odd": lambda o, t: o.nothing}}, "the metric odd fails"),
        ({"metrics": {"odd": lambda o, t: o[:, 0]}}, "the metric odd fails"),
        ({"metrics": {"loss": F.mse_loss}}, "'loss' cannot be a metric's name"),
        ({"metrics": {"odd": "accuracy"}}, "odd is 'accuracy': give a function"),
        ({"model": lambda: nn.Linear(3)}, "the function that makes the model failed"),
        ({"model": "linear"}, "give an nn.Module"),
        ({"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau}, "the scheduler cannot be used"),
        ({"model": nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), "batch_size": 1}, "BatchNorm needs at least 2"),
    ],
)
def test_a_wrong_argument_is_named(arguments, said):
    given = {"model": nn.Linear(3, 2), "clients": [afo.Client((X, Y), (X, Y))], "loss": F.cross_entropy, "rounds": 1}
    with pytest.raises(afo.InputError, match=said):
        afo.train(**{**given, **arguments})


@pytest.mark.parametrize(
    "make",
    [
        lambda: afo.AllForOne(samples=0),
        lambda: afo.AllForOne(samples=16.0),
        lambda: afo.AllForOne(sketch=True),
        lambda: afo.BySimilarity(weighting="normalized"),
        lambda: afo.BySimilarity(criterion="binary"),
        lambda: afo.BySimilarity(estimator="fresh"),
        lambda: afo.CustomCriterion(lambda x: x if x > 0.5 else 0),
        lambda: afo.Settings(rounds=0),
        lambda: afo.Settings(optimizer={"lr": 0.1}),
    ],
)
def test_parts_that_cannot_work_are_refused_when_made(make):
    with pytest.raises(afo.InputError):
        make()


def test_a_model_that_warns_is_not_refused():
    import warnings

    class Warns(nn.Linear):
        def forward(self, x):
            warnings.warn("just so you know", stacklevel=1)
            return super().forward(x)

    with pytest.warns(UserWarning, match="just so you know"):
        result = afo.train(Warns(3, 2), [afo.Client((X, Y), (X, Y))], loss=F.cross_entropy, rounds=1)
    assert len(result.models) == 1


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(reduction="sum"), lambda o, y: F.cross_entropy(o, y) * len(o)])
def test_a_loss_that_sums_over_the_batch_is_refused(loss):
    with pytest.raises(afo.InputError, match=r"client 0, train data: the loss of a batch twice over is twice.*\.mean"):
        train(GOOD, loss=loss)


def test_a_loss_that_averages_whatever_it_averages_over_is_not_taken_for_a_sum():
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0]))
    for loss in (weighted, lambda o, y: F.cross_entropy(o, y).sqrt(), lambda o, y: 0.0 * o.sum()):
        assert len(train((X, Y), loss=loss).models) == 2


@pytest.mark.parametrize(
    ("outputs", "targets"), [(nn.Linear(3, 1), (6,)), (nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)), (6, 1))]
)
def test_a_loss_that_compares_every_output_with_every_target_is_refused(outputs, targets):
    data = (X, torch.randn(targets))
    with pytest.raises(afo.InputError, match=r"client 0, train data: the loss compares every output with every target"):
        afo.train(outputs, [afo.Client(data, data)], loss=lambda o, y: (o - y).square().mean(), rounds=1)


def test_a_loss_that_puts_shapes_right_itself_is_not_refused():
    data = (X, torch.randn(6))
    for model in (nn.Linear(3, 1), nn.Linear(3, 1, bias=False)):
        nn.init.zeros_(model.weight)  # all outputs are the same at the start
        loss = lambda o, y: (o.squeeze(1) - y).square().mean()  # noqa: E731
        assert len(afo.train(model, [afo.Client(data, data)], loss=loss, rounds=1).models) == 1


@pytest.mark.parametrize("label", [7, -1])
@pytest.mark.parametrize("part", ["train", "test"])
def test_one_label_out_of_range_names_client_and_sample_at_the_start(label, part):
    labels = torch.zeros(400, dtype=torch.long)
    labels[123] = label
    bad = (torch.randn(400, 3), labels)
    given = {"bad": bad} if part == "train" else {"bad": GOOD, "test": bad}
    with pytest.raises(
        afo.InputError, match=rf"client 1 \(Lille\), {part} data: sample 123, target {label}: .*IndexError"
    ):
        train(**given)


def test_a_word_out_of_range_names_client_and_sample_at_the_start():
    words = torch.zeros(50, 4, dtype=torch.long)
    words[17, 2] = 99
    good, model = (
        (torch.zeros(4, 4).long(), GOOD[1]),
        nn.Sequential(nn.Embedding(20, 3), nn.Flatten(), nn.Linear(12, 2)),
    )
    clients = [afo.Client(good, good), afo.Client((words, torch.zeros(50).long()), good)]
    with pytest.raises(afo.InputError, match=r"client 1, train data: sample 17, input up to 99: .*IndexError"):
        afo.train(model, clients, loss=F.cross_entropy, rounds=1)


def broken(i):
    if i == 4:
        raise OSError("cannot read scan")
    return X[i % 6], Y[i % 6]


def with_nan(i):
    return (torch.full((3,), torch.nan) if i == 4 else X[i % 6]), Y[i % 6]


@pytest.mark.parametrize(
    ("item", "said"), [(broken, "cannot be read: OSError: cannot read scan"), (with_nan, "has NaN or infinity")]
)
@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("guard", [False, True])
def test_an_item_of_a_dataset_that_cannot_be_used_is_named_with_its_client_whenever_it_comes(item, said, part, guard):
    data = [Items(item, 30), (X, Y)]
    client = afo.Client(*(data if part == "train" else data[::-1]), name="Lille")
    clients = [afo.Client((X.repeat(5, 1), Y.repeat(5)), (X, Y)), client]
    options = {"rounds": 40, "batch_size": 2, "guard": guard and part == "train"}
    with pytest.raises(afo.InputError, match=rf"^client 1.*: item 4 of Items {said}"):
        afo.train(nn.Linear(3, 2), clients, loss=F.cross_entropy, algorithm=afo.Local(), **options)
