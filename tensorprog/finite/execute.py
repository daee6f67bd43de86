"""Blocks handed to workers: a bounded number of tasks under way, results as they are finished."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from queue import SimpleQueue
from typing import Any, TypeVar

from numpy.typing import NDArray

from tensorprog.finite.block import draw_blocks
from tensorprog.finite.cost import Flight, inside
from tensorprog.finite.job import Job
from tensorprog.finite.task import draw_packed, pack, ready
from tensorprog.language.errors import Problem, WorkerError

__all__ = ["execute", "finished"]

Task = TypeVar("Task")
Result = TypeVar("Result")
Drawn = list[dict[str, NDArray[Any]]]  # of each block of a task


def execute(
    job: Job, blocks: Iterable[int], flight: Flight, executor: Executor | None, normals: float
) -> Generator[tuple[list[int], Drawn]]:
    """Draw the blocks numbered; gives the numbers of each task with their results, in the order they are finished.

    `normals` are the random numbers that one worker will draw, roughly.  Closing the iterator cancels what is under
    way.

    Raises    WorkerError when workers are lost
    """
    numbers = iter(blocks)
    tasks = iter(lambda: list(islice(numbers, flight.size)), [])
    if inside(executor):
        ready(job, normals)
    if executor is not None:
        yield from finished(_submitter(job, executor, normals), tasks, flight.tasks)
    elif flight.workers > 1:
        with ThreadPoolExecutor(flight.workers) as pool:
            yield from finished(_submitter(job, pool, normals), tasks, flight.tasks)
    else:
        for task in tasks:
            yield task, draw_blocks(job, task)


def _submitter(job: Job, executor: Executor, normals: float) -> Callable[[list[int]], Future[Drawn]]:
    if inside(executor):
        return lambda task: executor.submit(draw_blocks, job, task)
    packed = pack(job, normals)
    share = getattr(executor, "share", None)  # executors of this package send it once
    sent = packed if share is None else share(packed)
    return lambda task: executor.submit(draw_packed, sent, task)


def finished(
    submit: Callable[[Task], Future[Result]], tasks: Iterator[Task], most: int
) -> Generator[tuple[Task, Result]]:
    """Keep up to `most` tasks under way; gives each with its result, in the order they are finished.

    Raises    WorkerError when workers are lost
    """
    ended: SimpleQueue[Future[Result]] = SimpleQueue()
    flying: dict[Future[Result], Task] = {}
    try:
        while True:
            for task in islice(tasks, most - len(flying)):
                with _worker_errors():
                    future = submit(task)
                flying[future] = task
                future.add_done_callback(ended.put)
            if not flying:
                return
            future = ended.get()
            task = flying.pop(future)
            with _worker_errors():
                drawn = future.result()
            del future  # the results are the caller's alone
            yield task, drawn
    except WorkerError as error:
        if isinstance(error.__cause__, BrokenExecutor):
            flying.clear()  # a broken pool ends its tasks itself, and stumbles over cancelled ones
        raise
    finally:
        for future in flying:
            future.cancel()


@contextmanager
def _worker_errors() -> Iterator[None]:
    """Turn the loss of workers into one message.

    Raises    WorkerError
    """
    try:
        yield
    except ImportError as error:
        raise WorkerError(
            Problem(f"a worker cannot load what it needs: {error}", fix="install the same tensorprog there")
        ) from error
    except (BrokenExecutor, CancelledError) as error:
        raise _lost(error) from error
    except Exception as error:
        if type(error).__module__.split(".")[0] == "distributed":
            raise _lost(error) from error
        raise


def _lost(error: BaseException) -> WorkerError:
    what = "their tasks were cancelled" if isinstance(error, CancelledError) else str(error).strip().split("\n")[0]
    return WorkerError(
        Problem(
            f"workers were lost before their networks were drawn: {what.rstrip('.')}",
            fix="give each worker more memory, or use fewer; a script that starts processes needs its calls under "
            'if __name__ == "__main__"; a run that stores its results goes on where it stopped',
        )
    )
