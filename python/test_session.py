"""The NumPy wrapper against the hand-made test bundle.

    python3 python/test_session.py MAKE_BUNDLE STAGE.so MESH
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy  # noqa: E402
import partita  # noqa: E402
from expecting import expect_error  # noqa: E402


def check_threads(session, x, mode, y):
    """Threads that share a session each get the result of their own input."""
    wrong = []

    def work(number):
        for _ in range(20):
            scaled = session.run({"x": x * 0, "mode": mode} if number % 2 else
                                 {"x": x, "mode": mode})["y"]
            known = zero if number % 2 else y
            if not numpy.allclose(scaled, known, rtol=1e-5, atol=1e-5):
                wrong.append(number)

    zero = session.run({"x": x * 0, "mode": mode})["y"]
    assert not numpy.allclose(zero, y), "the two inputs give the same"
    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, f"{len(wrong)} of 120 results are another thread's"


def check_fork(session, x, mode):
    """A child has no ranks: an error at once, by Python and by C, and no hang at its end."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            expect_error("the session belongs to process",
                         lambda: session.run({"x": x, "mode": mode}))
            lib = partita._lib()
            assert lib.partita_run(session._handle) == 1
            assert b"fork()" in lib.partita_error(session._handle)
            lib.partita_free(session._handle)
            status = 0
        finally:
            os._exit(status)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0, f"the child ended with {status}"
            return
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("the child hangs")


def check_damage(bundle):
    """A flipped bit of a weight is an error, unless nobody is to look."""
    path = os.path.join(bundle, "weights.bin")
    with open(path, "rb") as file:
        whole = file.read()
    with open(path, "wb") as file:
        file.write(whole[:-1] + bytes([whole[-1] ^ 1]))
    expect_error("has other bytes", lambda: partita.Session(bundle))
    with partita.Session(bundle, check=False) as session:
        assert session.num_ranks > 0
    with open(path, "wb") as file:
        file.write(whole)
    partita.Session(bundle, weights_dir=bundle).close()


def check_misuse(session, bundle):
    """What C callers get wrong is an error with a sentence."""
    lib = partita._lib()
    size = 7 * 16 * 4
    assert lib.partita_bind_input(session._handle, b"x", None, size) == 1
    assert lib.partita_error(session._handle) == b"input 'x': the data is NULL"
    assert lib.partita_bind_input(session._handle, None, None, size) == 1
    assert lib.partita_error(session._handle) == b"the name of the input is NULL"
    assert lib.partita_bind_output(session._handle, b"y", None,
                                   numpy.prod(session.outputs["y"][1]) * 4) == 1
    assert lib.partita_error(session._handle) == b"output 'y': the data is NULL"
    expect_error("threads: expected a number per rank",
                 lambda: partita.Session(bundle, threads=-2))
    expect_error("timeout: expected seconds", lambda: partita.Session(bundle, timeout=-1))


def main(make_bundle, stage, mesh):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([make_bundle, stage, mesh, folder], check=True)
        x, mode, y = (numpy.load(f"{folder}/{name}.npy") for name in ("x", "mode", "y"))
        expect_error("cannot open bundle", lambda: partita.Session(folder + "/none"))
        expect_error("transport 'tcp' is unknown",
                     lambda: partita.Session(folder + "/bundle", transport="tcp"))
        with partita.Session(folder + "/bundle") as session:
            assert session.inputs["x"] == (numpy.dtype("float32"), (7, 16))
            assert session.num_ranks == 4
            for _ in range(3):
                result = session.run({"x": x, "mode": mode})["y"]
                numpy.testing.assert_allclose(result, y, rtol=1e-5, atol=1e-5)
            # Any memory order and byte order that NumPy can hold.
            result = session.run({"x": numpy.asfortranarray(x).astype(">f4"),
                                  "mode": mode})["y"]
            numpy.testing.assert_allclose(result, y, rtol=1e-5, atol=1e-5)
            expect_error("input 'x' is float64", lambda: session.run(
                {"x": x.astype("f8"), "mode": mode}))
            expect_error("input 'mode' is missing", lambda: session.run({"x": x}))
            expect_error("there is no input 'z'", lambda: session.run({"z": x}))
            check_threads(session, x, mode, y)
            check_fork(session, x, mode)
            check_misuse(session, folder + "/bundle")
        expect_error("the session is closed", lambda: session.run({"x": x}))
        check_damage(folder + "/bundle")
        # A rank that hangs is reported, and the process goes on.
        with partita.Session(folder + "/bundle", timeout=0.5) as session:
            hang = numpy.array([1, 3], dtype=numpy.int64)
            expect_error("rank 3, node 'guard' (kernel): no progress",
                         lambda: session.run({"x": x, "mode": hang}))
            expect_error("the session ended with an earlier error",
                         lambda: session.run({"x": x, "mode": mode}))
    print("python wrapper: passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
    # A rank that hangs on purpose still has its thread.
    sys.stdout.flush()
    os._exit(0)
