"""Contracts that pytest checks for methods, networks, learners, data sets and populations.

A subclass in a test file names what it is about:

    from fl_app.testing import MethodContract
    class TestMine(MethodContract): name = "my_method"
"""

from fl_app.testing.method import MethodContract
from fl_app.testing.parts import (
    DataContract,
    LearnerContract,
    NetworkContract,
    PopulationContract,
)

__all__ = [
    "DataContract",
    "LearnerContract",
    "MethodContract",
    "NetworkContract",
    "PopulationContract",
]
