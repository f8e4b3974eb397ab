"""Whatever stands on the command line or in a config: exit code 0 or 2 with a sentence, never a traceback."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightning_modules import cli
from lightning_modules.command_line import bench, compare
from lightning_modules.grid.options import parse_options

# Small enough to run at once, or so large that nothing starts to be allocated. None may start further processes.
NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 10**15, -(10**15), 2**63, 2**64, 10**30])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | st.text(max_size=6) | st.sampled_from(["auto", "sum", "mean"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=4,
)
KEYS = [
    *("seed_everything", "results_dir", "ckpt_path", "model", "data", "trainer", "model.layers", "model.estimator"),
    *("model.estimator.class_path", "model.estimator.init_args", "model.estimator.init_args.samples"),
    *("model.estimator.init_args.engine", "model.optimizer", "model.optimizer.init_args.lr"),
    *("model.lr_scheduler", "model.weight_decay", "model.loss", "model.val_samples", "model.seed", "data.data_dir"),
    *("data.binarization", "data.batch_size", "data.eval_batch_size", "data.seed", "trainer.accelerator"),
    *("trainer.precision", "trainer.logger", "trainer.callbacks", "trainer.max_epochs", "trainer.max_steps"),
    *("trainer.max_time", "trainer.limit_train_batches", "trainer.limit_val_batches", "trainer.val_check_interval"),
    *("trainer.check_val_every_n_epoch", "trainer.log_every_n_steps", "trainer.accumulate_grad_batches"),
    *("trainer.gradient_clip_val", "trainer.gradient_clip_algorithm", "trainer.deterministic", "trainer.plugins"),
    *("trainer.num_sanity_val_steps", "trainer.profiler", "trainer.reload_dataloaders_every_n_epochs", "", "nonsense"),
]


def base(folder: Path) -> list[str]:
    tiny = {
        "model": {"layers": [3, 2], "estimator": {"class_path": "CommonRandomNumbers"}},
        "trainer": {"accelerator": "cpu", "fast_dev_run": 1},
        "data": {"binarization": "dynamic", "batch_size": 10, "eval_batch_size": 10},
        "results_dir": str(folder / "results"),
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(tiny))
    return ["--config", str(folder / "tiny.yaml")]


def ends_in_peace(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    try:
        code = cli.main(arguments)
    except SystemExit as end:  # --help
        code = int(end.code or 0)
    shown = capsys.readouterr()
    assert code in (0, 2), shown.err
    assert "Traceback" not in shown.err + shown.out
    if code == 2:
        last = (shown.err or shown.out).splitlines()[-1 if arguments else 0]
        assert last.startswith("releg" if arguments else "usage: releg")
        assert len(last) > len("releg: ") + 5


def nested(key: str, value: Any) -> Any:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


AMPLE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.mark.long
@pytest.mark.parametrize("key", KEYS)
def test_nothing_for_any_setting(key: str, there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As when the value is forgotten behind the colon."""
    (there / "hostile.yaml").write_text(yaml.safe_dump(nested(key, None)))
    ends_in_peace(["fit", *base(there), "--config", str(there / "hostile.yaml")], capsys)


def test_any_value_of_any_setting(there: Path, capsys: pytest.CaptureFixture[str], examples: int) -> None:
    @settings(AMPLE, max_examples=examples)
    @given(command=st.sampled_from(["fit", "fit", "validate", "test"]), key=st.sampled_from(KEYS), value=VALUES)
    def check(command: str, key: str, value: Any) -> None:
        (there / "hostile.yaml").write_text(yaml.safe_dump(nested(key, value), allow_unicode=True))
        ends_in_peace([command, *base(there), "--config", str(there / "hostile.yaml")], capsys)

    check()


def test_any_text_as_a_config(there: Path, capsys: pytest.CaptureFixture[str], examples: int) -> None:
    yaml_like = st.text(alphabet=" \n:-[]{}&*!|>'\"%@`,?#ab1\x00\t\u2028é", max_size=25)

    @settings(AMPLE, max_examples=examples)
    @given(text=yaml_like.map(str.encode) | st.binary(max_size=25))
    def check(text: bytes) -> None:
        (there / "hostile.yaml").write_bytes(text)
        ends_in_peace(["fit", *base(there), "--config", str(there / "hostile.yaml")], capsys)

    check()


def test_any_words_on_the_command_line(there: Path, capsys: pytest.CaptureFixture[str], examples: int) -> None:
    commands = st.sampled_from(["fit", "validate", "test", "variance"]) | st.text(max_size=8)
    options = ["--help", "--config", "--model.layers", "--trainer", "--ckpt", "--ckpt_path", "-c", "--estimators", "--"]
    pairs = ["--data.batch_size=-1", "--model.layers=[3,2]", "--num-images=1", "--print_config", "--config=base.yaml"]
    words = st.text(max_size=8) | st.sampled_from(options) | st.sampled_from(pairs)

    @settings(AMPLE, max_examples=2 * examples)
    @given(command=st.lists(commands, max_size=1), arguments=st.lists(words, max_size=5))
    def check(command: list[str], arguments: list[str]) -> None:
        ends_in_peace(command + arguments, capsys)

    check()


MEASURING = ["--ckpt", "--config", "--estimators", "--num-images", "--architectures", "--rounds", "--output"]
OF_THE_GRID = ["--budget", "--seeds", "--jobs", "--only", "--launcher", "--ray-address", "--gpus-per-run", "--results"]


@pytest.mark.parametrize(
    ("read", "options", "program"),
    [
        (bench.build_parser().parse_args, MEASURING, "releg"),
        (compare.build_parser().parse_args, MEASURING, "releg"),
        (parse_options, OF_THE_GRID, "bash reproduce.sh --help"),
    ],
)
def test_any_words_after_a_command_that_is_only_read(
    read: Callable[[list[str]], object], options: list[str], program: str, examples: int
) -> None:
    """With nothing wrong it would measure or train."""
    usual = ["2", "200-200", "arm", "ray", "smoke", "-1", "0.25"]
    words = st.sampled_from(options) | st.text(max_size=8) | st.sampled_from(usual)

    @settings(AMPLE, max_examples=20 * examples)
    @given(arguments=st.lists(words, max_size=6))
    def check(arguments: list[str]) -> None:
        said = f"; see {program}"
        try:
            read(arguments)
        except ValueError as error:  # told in a sentence
            said = str(error)
        except SystemExit:  # --help
            pass
        assert f"; see {program}" in said

    check()


@pytest.mark.parametrize("precision", ["32", "64"])
def test_single_and_double_precision_train(precision: str, there: Path) -> None:
    assert cli.main(["fit", *base(there), "--trainer.precision", precision]) == 0
