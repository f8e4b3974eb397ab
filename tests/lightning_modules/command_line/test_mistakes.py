"""What a user mistypes, in any command of releg: one sentence, exit code 2, and no file is written."""

from pathlib import Path

import pytest
import torch

from lightning_modules import RESULTS, cli
from tests.lightning_modules.commands_helper import TINY, fit

WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
FIT = " ".join(fit(Path("r")))
MEASURED = f"--ckpt {RESULTS / 'weights' / '200-200' / 'lr.safetensors'}"
MISTAKES = [
    ("dance", "there is no command dance, expected one of fit, validate, test"),
    ("fit --config nope.yaml", "there is no config nope.yaml, expected a file or one of architecture/"),
    (" ".join(["fit", *TINY]), "estimator"),
    (f"{FIT} --trainer.max_stepz 5", "max_stepz"),
    (f"{FIT} --trainer.precision bf16-mixed", "trainer.precision is bf16-mixed, expected 32-true or 64-true, "),
    (f"{FIT} --trainer.precision 16-true", "trainer.precision is 16-true, expected 32-true or 64-true, "),
    (f"{FIT} --model.layers [3,0]", "expected one or more positive sizes"),
    (f"{FIT} --model.optimizer.init_args.lr -1", "Invalid learning rate: -1.0, expected"),
    (f"{FIT} --data.batch_size 0", "batch_size is 0, expected"),
    (f"{FIT} --data.binarization foo", "Got value: foo"),
    (f"{FIT} --model.estimator Foo", "Foo"),
    (FIT.replace("fit", "test", 1), "releg test got no checkpoint, expected --ckpt PATH; name a run's best.ckpt"),
    (FIT.replace("fit", "validate", 1), "releg validate got no checkpoint, expected --ckpt PATH; name a run's"),
    ("test --ckpt nope.ckpt", "there is no checkpoint nope.ckpt, expected a file; give the path"),
    ("bench --architectures 200x200", "invalid layers_of value: '200x200'; see releg bench --help"),
    ("bench --threads 0", "got '0', expected a whole number of at least 1"),
    ("bench --no-such-option", "unrecognized arguments: --no-such-option; see releg bench --help"),
    ("bench --output /dev/null/results", "expected a folder that can be written"),
    pytest.param("bench --device cuda", "--device is cuda, but torch finds no GPU here", marks=WITHOUT_GPU),
    ("verify --results .", "there are no weights in"),
    ("verify --samples 1", "--samples: got '1', expected a whole number of at least 2"),
    ("variance --ckpt nowhere.ckpt", "no checkpoint nowhere.ckpt"),
    (f"variance {MEASURED} --estimators magic", "there is no estimator magic"),
    (f"variance {MEASURED} --num-images many", "got 'many', expected a whole number of at least 2"),
    (f"variance {MEASURED} --samples-per-image 1", "--samples-per-image: got '1', expected a whole number of at least"),
    (f"variance {MEASURED} --baseline-steps -1", "--baseline-steps: got '-1', expected a whole number of at least 0"),
    (f"variance {MEASURED} --jobs 0", "--jobs: got '0', expected a whole number of at least 1; see releg variance"),
    (f"variance {MEASURED} --output .", "--output is the folder ., expected a file"),
    (f"variance {MEASURED} --output x.json", "--output is x.json, expected a name that ends in .csv"),
    (f"variance {MEASURED} --output /dev/null/x.csv", "cannot write to /dev/null"),
    (f"compare {MEASURED} --estimators nobody --output c", "there is no estimator nobody, expected one of"),
]


@pytest.mark.parametrize(("typed", "words"), MISTAKES)
def test_a_mistake_ends_in_one_sentence_and_exit_code_2(
    typed: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(typed.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (sentence,) = shown.err.splitlines()
    assert sentence.startswith("releg: ")
    assert words in sentence
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} <= {".lock"}
