"""The commands of an installed package: they lie beside it."""
import os
import sys


def _run(name):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    os.execv(path, [path, *sys.argv[1:]])


def partita():
    _run("partita")


def partita_run():
    _run("partita-run")
