from __future__ import annotations

import inspect as introspection

import pytest

import headway as hw
from headway.lazy import attach


def test_the_calls_of_the_design_are_there():
    assert callable(hw.load) and callable(hw.inspect) and callable(hw.run) and callable(hw.logits)
    assert hw.Weights.__name__ == "Weights" and hw.Head.__name__ == "Head"
    assert hw.__version__.count(".") == 2


@pytest.mark.parametrize("name", ["algebra", "behaviour", "circuits", "errors", "model", "paths", "sources", "studies"])
def test_packages_are_attributes(name: str):
    assert introspection.ismodule(getattr(hw, name)) and name in dir(hw)


def test_a_package_below_a_package():
    assert callable(hw.sources.handmade.induction_model)
    assert callable(hw.circuits.composition_scores)


def test_a_name_that_does_not_exist():
    with pytest.raises(AttributeError, match="module 'headway' has no attribute 'nothing'"):
        hw.nothing  # noqa: B018


def test_a_name_that_is_its_own_home_is_the_module():
    get, listed, names = attach("headway", {"ids": "headway.ids", "HeadId": "headway.ids"})
    assert introspection.ismodule(get("ids")) and get("HeadId") is get("ids").HeadId
    assert listed() == names == ["HeadId", "ids"]
