"""The demo: one machine, the whole system, three ways to train the same model."""

from p4reduce_controller.demo.children import DemoError
from p4reduce_controller.demo.run import run_demo

__all__ = ["DemoError", "run_demo"]
