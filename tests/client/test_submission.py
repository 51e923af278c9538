"""How a document becomes the start of a workflow."""

from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy

from headbay.client.submission import LABELS, NAME, POOL, PRIORITY, QUEUE, prepare
from headbay.domain.document import digest
from headbay.domain.ids import WorkloadId
from headbay.domain.operation import WorkloadContext

HERE = WorkloadContext(submitted_by="me@here")


def document(*steps, **more):
    listed = list(steps) or [{"name": "s", "run": "true"}]
    return {"apiVersion": "headbay/v1", "name": "w", "steps": listed} | more


def test_a_start_can_be_found_described_and_never_repeated():
    doc = document(labels={"b": "2", "a": "1"}, priority=7, queue="nightly", pool="gpu")
    options = prepare(doc, HERE).start_options(WorkloadId("w-1"))
    assert options["id"] == "headbay/w/w-1"
    assert options["task_queue"] == "headbay"
    assert options["id_reuse_policy"] is WorkflowIDReusePolicy.REJECT_DUPLICATE
    assert options["id_conflict_policy"] is WorkflowIDConflictPolicy.FAIL
    assert options["args"] == [doc, {"submitted_by": "me@here"}]
    assert options["memo"] == {
        "headbay_digest": digest(doc),
        "headbay_name": "w",
        "headbay_queue": "nightly",
    }
    found = {pair.key.name: pair.value for pair in options["search_attributes"].search_attributes}
    assert found == {
        POOL.name: "gpu",
        QUEUE.name: "nightly",
        NAME.name: "w",
        PRIORITY.name: 7,
        LABELS.name: ["a=1", "b=2"],
    }


def test_a_document_without_a_context_is_the_only_argument():
    doc = document()
    assert prepare(doc, WorkloadContext()).start_options(WorkloadId("w"))["args"] == [doc]


def test_defaults_are_not_written_into_what_is_submitted():
    doc = document()
    submission = prepare(doc, HERE)
    assert submission.document == doc
    assert submission.dag.queue == "default"


def test_details_show_the_graph_by_the_documents_steps():
    doc = document(
        {"name": "build", "run": "make"},
        {"name": "test", "run": "tox", "dependsOn": "build", "matrix": {"N": ["1", "2"]}},
        {"name": "join", "run": "true", "dependsOn": ["build", "test"]},
    )
    details = prepare(doc, HERE).details()
    assert "| build |  | `make` |" in details
    assert "| test-2 | `build` | `tox` |" in details
    assert "| join | `build, test` | `true` |" in details


def test_summary_and_details_keep_within_what_the_server_takes():
    wide = "é|`\\" * 100
    steps = [{"name": f"s{i}", "run": wide} for i in range(1024)]
    submission = prepare(document(*steps, name="n" * 60), HERE)
    assert len(submission.details().encode()) < 20_000
    assert len(submission.summary().encode()) <= 400
    assert "more steps" in submission.details()
    one = prepare(document({"name": "s", "run": wide}), HERE)
    assert len(one.summary().encode()) <= 400
    rows = [line for line in one.details().splitlines() if line.startswith("| s |")]
    assert len(rows) == 1


def test_only_relative_workdirs_need_this_machine():
    assert not prepare(document(), HERE).needs_base_dir
    assert not prepare(document({"name": "s", "run": "x", "workdir": "/srv"}), HERE).needs_base_dir
    assert prepare(document({"name": "s", "run": "x", "workdir": "."}), HERE).needs_base_dir
    inherited = document(defaults={"workdir": ".."})
    assert prepare(inherited, HERE).needs_base_dir
