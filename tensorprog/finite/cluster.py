"""Workers on other machines: a dask.distributed scheduler as an executor."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from typing import Any

from tensorprog.language.errors import ProgramError, WorkerError, fail
from tensorprog.language.extras import how_to_install

__all__ = ["adopted", "connected"]

CONNECT_SECONDS = 5


@contextmanager
def connected(address: str, note: Callable[[str], None]) -> Iterator[Executor]:
    """An executor for the scheduler at an address such as tcp://host:8786; leaving cancels what is under way.

    The library's own log is silenced: what a user needs to know arrives as an exception or a note.

    Raises    ProgramError if nothing answers there, or dask.distributed is not installed
    """
    client = _connect(address, note)
    try:
        if not client.nthreads():
            note(f"the scheduler at {address} has no workers yet")
            with suppress(TimeoutError):  # it may start them when it has work for them
                client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        yield _Cluster(client, client.get_executor(pure=False))
    finally:
        client.close()


def adopted(executor: Executor | None) -> Executor | None:
    """The executor of somebody's own client as one of ours; any other as it is."""
    client = getattr(executor, "_client", None) if type(executor).__module__.split(".")[0] == "distributed" else None
    return executor if client is None else _Cluster(client, executor)


def _connect(address: str, note: Callable[[str], None]) -> Any:
    try:
        import asyncio

        import distributed
    except ImportError:
        raise fail("a scheduler needs the package dask.distributed", fix=how_to_install("cluster")) from None
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        kind = asyncio.run(_answer(address))
    except TimeoutError:
        raise _no_scheduler(address, f"nothing came within {CONNECT_SECONDS} s") from None
    except Exception as error:  # of many kinds: what answers may be anything
        raise _no_scheduler(address, str(error).strip().split("\n")[0] or type(error).__name__) from None
    if kind != "Scheduler":
        raise _no_scheduler(address, f"a {kind} does")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client: Any = distributed.Client(  # type: ignore[no-untyped-call]
            address, timeout=CONNECT_SECONDS, set_as_default=False
        )
    for warning in caught:
        if "version" in type(warning.message).__name__.lower():  # of the libraries that carry the tasks
            note(f"warning: {str(warning.message).strip()}")
    return client


async def _answer(address: str) -> str:
    """What kind of server is at an address; asked before there is a client, which waits for ever for some."""
    import asyncio

    from distributed.core import rpc
    from distributed.security import Security

    security = Security().get_connection_args("client")  # type: ignore[no-untyped-call]
    server: Any = rpc(address, timeout=CONNECT_SECONDS, connection_args=security)  # type: ignore[no-untyped-call]
    try:
        return str((await asyncio.wait_for(server.identity(), CONNECT_SECONDS))["type"])
    finally:
        await server.close_rpc()


def _no_scheduler(address: str, reason: str) -> ProgramError:
    return fail(
        f"no scheduler answers at {address}: {reason}",
        fix="the address that dask scheduler prints, such as tcp://host:8786",
    )


class _Cluster(Executor):
    """The executor of a client; what all tasks have in common is sent once."""

    def __init__(self, client: Any, executor: Any) -> None:
        self._client, self._executor = client, executor

    @property
    def _max_workers(self) -> int:
        return max(1, int(sum(self._client.nthreads().values())))

    def share(self, value: Any) -> Any:
        """A value for the arguments of tasks: the result of a task itself, made again where it was lost."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # once, and large it is
            return self._client.submit(_same, value, pure=False)

    def submit(self, function: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        """Have a worker call a function."""
        future: Future[Any] = self._executor.submit(function, *args, **keywords)
        if self._client.status != "running":  # those submitted before the loss are cancelled, later ones stay for ever
            raise WorkerError("the scheduler has gone")
        return future


def _same(value: Any) -> Any:
    return value
