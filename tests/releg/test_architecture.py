"""Names of architectures, in both directions."""

import pytest

from releg.architecture import architecture_name, layers_of


@pytest.mark.parametrize(
    ("layers", "name"), [([200, 200], "200-200"), ([256, 128, 64, 32], "32-64-128-256"), ([7], "7")]
)
def test_the_deepest_layer_comes_first(layers: list[int], name: str) -> None:
    assert architecture_name(layers) == name
    assert layers_of(name) == layers


@pytest.mark.parametrize("name", ["", "200x200", "200-0", "200--200", "-200", "2.5-3", "٣-٣"])
def test_other_names_are_refused_with_an_example(name: str) -> None:
    with pytest.raises(ValueError, match=r"expected units per layer joined by hyphens, deepest first; .*32-64-128-256"):
        layers_of(name)
