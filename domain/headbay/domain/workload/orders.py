"""Builds what pool and node are asked, from the step and what is known of its upstreams."""

from headbay.domain.attempt import SECRET_FILES_VERSION, LaunchSpec, UpstreamRef
from headbay.domain.exchange import Grant, StepRequest
from headbay.domain.outcome import Outcome
from headbay.domain.retry import grown
from headbay.domain.workload.books import Books
from headbay.domain.workload.records import StepRecord

__all__ = ["launch_spec", "step_request"]


def step_request(books: Books, step: StepRecord, attempt: int) -> StepRequest:
    """The claim for one attempt."""
    dag, definition = books.dag, step.definition
    killed = sum(
        one.result is not None and one.result.outcome is Outcome.OOM_KILLED for one in step.attempts
    )
    return StepRequest(
        step=step.name,
        attempt=attempt,
        resources=grown(definition.resources, definition.retry.oom, killed),
        queue=dag.queue,
        priority=dag.priority,
        submitted_ms=books.submitted_ms,
        lease_ms=definition.lease_ms,
        grace_ms=definition.grace_ms,
        node=dag.pin_node or books.pinned,
        node_selector=definition.node_selector,
        tolerations=definition.tolerations,
        require=definition.require,
    )


def launch_spec(books: Books, step: StepRecord, grant: Grant) -> LaunchSpec:
    """The order to run what was granted."""
    dag, definition = books.dag, step.definition
    return LaunchSpec(
        version=SECRET_FILES_VERSION if definition.secret_files else SECRET_FILES_VERSION - 1,
        workload=books.id,
        step=step.name,
        attempt=grant.attempt,
        fence=grant.fence,
        allocation=grant.allocation,
        pool=dag.pool,
        node=grant.node,
        epoch=grant.epoch,
        argv=definition.argv,
        env=definition.env,
        secrets=definition.secrets,
        secret_files=definition.secret_files,
        resources=grant.resources,
        timeout_ms=definition.timeout_ms,
        grace_ms=grant.grace_ms,
        lease_ms=grant.lease_ms,
        workspace=dag.workspace,
        workdir=definition.workdir,
        base_dir=dag.base_dir,
        inputs={
            upstream.name: _seen_by_dependents(upstream)
            for upstream in (books.steps[i] for i in books.graph.upstreams[step.index])
        },
        artifacts=definition.artifacts,
        require=definition.require,
        user=definition.user,
        cpu_limit=definition.cpu_limit,
        labels=dag.labels,
    )


def _seen_by_dependents(step: StepRecord) -> UpstreamRef:
    return UpstreamRef(
        state=step.state,
        output=step.output.sha256 if step.output else None,
        artifacts=step.artifacts.sha256 if step.artifacts else None,
    )
