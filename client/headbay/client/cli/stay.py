"""Submits workloads and stays with them: progress, output, Ctrl-C, exit code."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from headbay.client.cli.console import say
from headbay.client.cli.endings import tell_end
from headbay.client.cli.exits import INTERRUPTED, OK, exit_code
from headbay.client.cli.intake import Intake
from headbay.client.cli.interrupts import Interrupts
from headbay.client.cli.output import Output, emit
from headbay.client.cli.pages import workload_page
from headbay.client.cli.problems import BadCommandLineError
from headbay.client.cli.progress import Lines, LivePaper, Progress, Silent
from headbay.client.cli.session import LAST, ensure_cluster, remember, resolve_id, with_client
from headbay.client.cli.views import show_reading
from headbay.client.client import HeadbayClient, subject
from headbay.client.errors import LogsElsewhereError, NotLocalError
from headbay.client.handle import WorkloadHandle
from headbay.client.local import choose_local
from headbay.client.models import Reading, Submitted
from headbay.client.reading import is_final
from headbay.client.submission import Submission, prepare
from headbay.client.workload_id import check_id
from headbay.domain.lifecycle import StepState
from headbay.domain.operation import WorkloadContext
from headbay.domain.quantity import parse_duration

__all__ = ["follow_to_end", "submit_and_stay", "submit_only", "wait_for"]

EXPLAIN_AFTER_S: Final = 2.0
EXPLAIN_EVERY_S: Final = 5.0
NODE_WITHIN_S: Final = 15.0
NODE_AGAIN_S: Final = 0.3
OUTPUT_GRACE_S: Final = 5.0
"""After the end, for the last of a command's output to be read."""


def submit_only(intake: Intake, *, workload: str | None, output: Output) -> int:
    """Hand in and return."""
    _check_id(workload)
    submission = prepare(intake.loaded, WorkloadContext(submitted_by=subject()))
    ensure_cluster()

    async def work(client: HeadbayClient) -> Submitted:
        handle = await _start(client, submission, intake.folder, workload)
        return Submitted(
            id=handle.id,
            created=handle.created,
            digest=handle.digest,
            notes=list(handle.notes),
            ui=workload_page(client.target, handle.id),
        )

    told = with_client(work)
    if not told.created and output == "table":
        say(f"{told.id} was submitted before with the same document")
    emit(told, output, table=lambda: [told.id], quiet=[told.id], notes=told.notes)
    return OK


def submit_and_stay(intake: Intake, *, workload: str | None, output: Output) -> int:
    """Hand in, show progress, and end with the workload's exit code."""
    # Refused before anything starts: no server is needed to find a document's faults.
    _check_id(workload)
    submission = prepare(intake.loaded, WorkloadContext(submitted_by=subject()))
    ensure_cluster()

    async def work(client: HeadbayClient) -> int:
        with Interrupts() as interrupts:
            handle = await _start(client, submission, intake.folder, workload)
            if output != "quiet":
                page = workload_page(client.target, handle.id)
                again = "" if handle.created else " (submitted before)"
                say(f"{handle.id}{again}{'  ' + page if page else ''}")
            for note in handle.notes:
                say(note, kind="warning")
            watch = Watch(handle, interrupts, output, command=intake.command)
            return await watch.run()

    return with_client(work)


def _check_id(workload: str | None) -> None:
    if workload == LAST:
        raise BadCommandLineError(f"`{LAST}` stands for what was submitted last; choose another id")
    if workload is not None:
        check_id(workload)


def follow_to_end(workload: str, output: Output) -> int:
    """Watch a workload that somebody submitted; Ctrl-C only stops watching."""
    chosen = resolve_id(workload)

    async def work(client: HeadbayClient) -> int:
        with Interrupts() as interrupts:
            watch = Watch(client.handle(chosen), interrupts, output, cancels=False)
            return await watch.run()

    return with_client(work)


def wait_for(workload: str, timeout: str | None, output: Output) -> int:
    """Wait without a word; then the final status."""
    chosen = resolve_id(workload)
    seconds = None if timeout is None else parse_duration(timeout) / 1_000

    async def work(client: HeadbayClient) -> Reading:
        return await client.wait(chosen, timeout_s=seconds, on_trouble=say)

    final = with_client(work)
    show_reading(final, output)
    return exit_code(final.workload)


async def _start(
    client: HeadbayClient, submission: Submission, folder: Path, workload: str | None
) -> WorkloadHandle:
    """Start it, on a node of this machine where it needs one."""
    for problem in submission.warnings:
        say(problem.text(), kind="warning")
    if submission.needs_base_dir:
        address = client.target.address if client.target else ""
        node = await _local_node(client, address)
        context = submission.context.model_copy(update={"base_dir": str(folder), "pin_node": node})
        submission = replace(submission, context=context)
    handle = await client.start(submission, id=workload)
    remember(handle.id)
    return handle


async def _local_node(client: HeadbayClient, address: str) -> str:
    """The node of this machine; the embedded cluster's own may be coming back.

    Raises:
        NotLocalError: There is none.
    """
    embedded = client.target is not None and client.target.dev is not None
    ends = time.monotonic() + (NODE_WITHIN_S if embedded else 0.0)
    while True:
        try:
            return choose_local((await client.nodes()).nodes, client.places, address)
        except NotLocalError:
            if time.monotonic() > ends:
                raise
        await asyncio.sleep(NODE_AGAIN_S)


class Watch:
    """One workload under the eyes of one person or script."""

    def __init__(
        self,
        handle: WorkloadHandle,
        interrupts: Interrupts,
        output: Output,
        *,
        command: bool = False,
        cancels: bool = True,
    ) -> None:
        self._handle = handle
        self._interrupts = interrupts
        self._output = output
        self._command = command
        self._cancels = cancels
        self._progress = self._choose_progress()
        self._last: Reading | None = None
        self._trouble = ""
        self._waits = ""

    def _choose_progress(self) -> Progress:
        if self._output == "quiet":
            return Silent(mute=True)
        if self._command:
            return Silent()
        if self._output == "table" and sys.stderr.isatty():
            return LivePaper()
        return Lines()

    async def run(self) -> int:
        """Stay until it has ended, or until we are sent away; the exit code."""
        following = asyncio.create_task(self._follow())
        besides = [asyncio.create_task(self._explain())]
        if self._cancels:
            besides.append(asyncio.create_task(self._cancel_when_interrupted()))
        printing = asyncio.create_task(self._print_output()) if self._command else None
        leave = self._interrupts.second if self._cancels else self._interrupts.first
        leaving = asyncio.create_task(leave.wait())
        try:
            await asyncio.wait({following, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                return self._detach()
            final = await following
            if printing is not None:
                await self._finish_printing(printing)
        finally:
            others = [following, leaving, *besides, *([printing] if printing else [])]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self._progress.close()
        self._conclude(final)
        return exit_code(final.workload)

    async def _follow(self) -> Reading:
        final: Reading | None = None
        async for reading in self._handle.follow(on_trouble=self._tell_trouble):
            final = self._last = reading
            self._trouble = ""
            self._progress.update(reading)
            if self._output == "jsonl":
                emit(reading, "jsonl", table=list)
                sys.stdout.flush()
        if final is None:
            raise AssertionError("following ended without a reading")
        return final

    async def _cancel_when_interrupted(self) -> None:
        await self._interrupts.first.wait()
        self._progress.tell("cancelling; once more leaves it alone and detaches")
        answer = await self._handle.cancel("interrupted at the terminal")
        if not answer.accepted or answer.code == "RECORDED":
            self._progress.tell(answer.message)

    def _detach(self) -> int:
        done = "cancelled it and detached" if self._cancels else "detached; it goes on"
        self._progress.close()
        say(f"{done}; `headbay follow {self._handle.id}` shows it")
        return INTERRUPTED

    async def _explain(self) -> None:
        """Say why nothing goes on, as soon as that lasts longer than a moment."""
        await asyncio.sleep(EXPLAIN_AFTER_S)
        while True:
            counts = self._last.workload.counts if self._last is not None else {}
            if counts.get("UNRESOLVED"):
                self._tell_unresolved()
            elif counts.get("QUEUED") and not counts.get("RUNNING"):
                await self._tell_reasons()
            await asyncio.sleep(EXPLAIN_EVERY_S)

    def _tell_unresolved(self) -> None:
        steps = self._last.workload.steps if self._last is not None else []
        for step in steps:
            if step.state is StepState.UNRESOLVED:
                self._tell_wait(
                    f"nobody saw how {step.name} ended; look what it did, then: headbay resolve "
                    f"{self._handle.id} {step.name} --as retry|success|failure"
                )
                return

    async def _tell_reasons(self) -> None:
        explanation = await self._handle.explain()
        for step in explanation.steps:
            if step.reasons:
                reason = step.reasons[0]
                fix = f" ({reason.fix})" if reason.fix else ""
                self._tell_wait(f"{step.step} waits: {reason.message}{fix}")
                return

    def _tell_wait(self, text: str) -> None:
        """Once, until something else holds it up."""
        if text != self._waits:
            self._waits = text
            self._progress.tell(text)

    async def _print_output(self) -> None:
        """A command's output, as if it ran right here."""
        stream = sys.stdout.buffer if self._output == "table" else sys.stderr.buffer
        try:
            async for piece in self._pieces():
                stream.write(piece)
                stream.flush()
        except LogsElsewhereError as error:
            self._progress.tell(str(error))

    async def _pieces(self) -> AsyncIterator[bytes]:
        async for piece in self._handle.logs(follow=True):
            if piece.note:
                self._progress.tell(piece.note)
            yield piece.data

    async def _finish_printing(self, printing: "asyncio.Task[None]") -> None:
        try:
            async with asyncio.timeout(OUTPUT_GRACE_S):
                await printing
        except TimeoutError:
            self._progress.tell(f"output is incomplete; see `headbay logs {self._handle.id}`")

    def _tell_trouble(self, text: str) -> None:
        """Once for each outage, not at every look."""
        if text != self._trouble:
            self._trouble = text
            self._progress.tell(text)

    def _conclude(self, final: Reading) -> None:
        if not is_final(final):
            raise AssertionError("a workload that goes on was taken for ended")
        if self._output == "quiet":
            return
        if self._output == "json":
            emit(final, "json", table=list)
        tell_end(final, brief=self._command)
