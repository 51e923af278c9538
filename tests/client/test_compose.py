"""The production-shaped cluster of docker-compose.yml, checked without a container engine."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import psycopg
import pytest
from ruamel.yaml import YAML
from support.postgres import PostgresServer

from headbay.activities.ledger import open_ledger

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES = YAML(typ="safe").load(TEXT)["services"]
DOCKERFILE = (ROOT / "deploy" / "control" / "Dockerfile").read_text()
SCRIPTS = sorted((ROOT / "deploy").rglob("*.sh"))

KEYS = {
    *("image", "build", "restart", "depends_on", "environment", "volumes", "ports", "healthcheck"),
    *("entrypoint", "command", "shm_size", "stop_grace_period"),
    *("read_only", "tmpfs", "cap_drop", "security_opt"),
}
"""Of a service; a word outside of these is a misspelling, or belongs in here."""

ENDED = "service_completed_successfully"
HEALTHY = "service_healthy"
VARIABLE = re.compile(r"\$\{([A-Z_]+)(?:(:\?|:-)([^}]*))?\}")


def conditions():
    """(service, what it waits for, until when)."""
    return [
        (name, needed, how["condition"])
        for name, service in SERVICES.items()
        for needed, how in service.get("depends_on", {}).items()
    ]


def one_shots():
    """Services that run a script and end."""
    return {name for name, s in SERVICES.items() if s.get("entrypoint", [""])[0] == "/bin/sh"}


def example():
    """The variables of .env.example."""
    lines = (ROOT / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def instructions():
    """The Dockerfile's, as (word, rest), continued lines joined."""
    joined = DOCKERFILE.replace("\\\n", " ").splitlines()
    return [tuple(line.split(None, 1)) for line in joined if line and not line.startswith("#")]


def test_every_service_is_written_with_known_words_and_says_when_it_is_started_again():
    for name, service in SERVICES.items():
        assert set(service) <= KEYS, name
        assert service["restart"].startswith("on-failure" if name in one_shots() else "unless")


def test_every_dependency_exists_and_none_waits_for_itself():
    graph = {name: set(service.get("depends_on", {})) for name, service in SERVICES.items()}
    assert set().union(*graph.values()) <= set(graph)
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    expected = ["postgres", "temporal-schema", "temporal", "temporal-namespace", "control"]
    assert [name for name in order if name in expected] == expected


def test_whoever_is_waited_for_can_reach_what_is_waited_for():
    assert {how for _, _, how in conditions()} == {ENDED, HEALTHY}
    for name, needed, how in conditions():
        if how == HEALTHY:
            assert SERVICES[needed]["healthcheck"]["test"][0] == "CMD", (name, needed)
        else:
            assert needed in one_shots(), (name, needed)
    waited_for = {needed for _, needed, how in conditions() if how == ENDED}
    assert waited_for == one_shots(), "a one-shot that nobody waits for races with the rest"


def test_every_image_is_pinned_to_a_version():
    images = [service["image"] for service in SERVICES.values()]
    images += [rest.split()[0] for word, rest in instructions() if word == "FROM"]
    for image in images:
        _, _, tag = image.partition(":")
        assert re.match(r"\d+(\.\d+)*(-[a-z]+)*$", tag), image
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert SERVICES["control"]["image"] == f"headbay-control:{version}"
    assert (
        SERVICES["temporal"]["image"].split(":")[1]
        == (SERVICES["temporal-schema"]["image"].split(":")[1])
    ), "the schema is the server's own"


def test_a_missing_password_stops_it_with_a_message_and_the_example_names_every_variable():
    used = VARIABLE.findall(TEXT)
    assert {name for name, _, _ in used} == set(example())
    required = {name for name, kind, _ in used if kind == ":?"}
    assert required == {name for name in example() if name.endswith("_PASSWORD")}
    for name, kind, rest in used:
        assert kind, f"{name} would be empty in silence"
        if kind == ":?":
            assert ".env.example" in rest
            assert example()[name] == "", "a shipped password is everybody's"
        else:
            assert example()[name] == rest, "the example shows the default"
    assert TEXT.count("$") == len(used)
    assert ".env" in (ROOT / ".gitignore").read_text().split()


def test_every_port_is_this_machine_s_alone_unless_said_otherwise():
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == 3
    for port in ports:
        assert re.fullmatch(r"\$\{[A-Z]+_BIND:-127\.0\.0\.1\}:\d+:\d+", port)


def test_every_mounted_file_and_every_named_volume_exists():
    named = YAML(typ="safe").load(TEXT)["volumes"]
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source, _, rest = volume.partition(":")
            if source.startswith("./"):
                assert (ROOT / source).is_file()
                assert rest.endswith(":ro")
            else:
                assert source in named


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_shell_and_gets_every_variable_it_reads(script):
    subprocess.run(["sh", "-n", script], check=True)
    text = script.read_text()
    told = f"/headbay/{script.name}"
    (service,) = [s for s in SERVICES.values() if told in s.get("entrypoint", [])]
    own = set(re.findall(r"^\s*([a-z]+)=", text, re.MULTILINE))
    read = set(re.findall(r"\$([A-Za-z_]+)", text)) - own
    assert read <= set(service["environment"])
    assert "set -eu" in text


def test_the_schema_script_asks_for_both_databases_in_order(tmp_path):
    tool = tmp_path / "temporal-sql-tool"
    tool.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\n')
    tool.chmod(0o755)
    given = dict.fromkeys(SERVICES["temporal-schema"]["environment"], "x")
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"} | given
    subprocess.run(["sh", ROOT / "deploy/temporal/schema.sh"], env=env, check=True)
    called = (tmp_path / "calls").read_text().splitlines()
    calls = [call.split(" --database ")[1].split() for call in called]
    assert [(database, word) for database, word, *_ in calls] == [
        (database, word)
        for database in ("temporal", "temporal_visibility")
        for word in ("create", "setup-schema", "update-schema")
    ]


@pytest.mark.cluster
def test_the_namespace_is_made_once_with_its_retention_and_a_dead_server_is_a_failure(cluster):
    def made(address):
        given = {"TEMPORAL_ADDRESS": address, "TEMPORAL_NAMESPACE": "trial", "RETENTION": "7d"}
        script = ROOT / "deploy" / "temporal" / "namespace.sh"
        env = cluster.env | given
        return subprocess.run(["sh", script], env=env, capture_output=True, text=True, check=False)

    address = cluster.env["TEMPORAL_ADDRESS"]
    first, second = made(address), made(address)
    assert first.returncode == 0, first.stderr
    assert (second.returncode, "namespace trial exists" in second.stdout) == (0, True)
    assert made("127.0.0.1:1").returncode != 0
    shown = subprocess.run(
        ["temporal", "operator", "namespace", "describe", "--namespace", "trial", "-o", "json"],
        env=cluster.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(shown.stdout)["config"]["workflowExecutionRetentionTtl"] == "604800s"


def test_the_image_copies_only_what_exists_and_is_sent_and_runs_as_nobody_special():
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"}
    copied = set()
    for word, rest in instructions():
        if word == "COPY" and "--from" not in rest:
            copied |= set(shlex.split(rest)[:-1])
    assert {name for name in copied if not (ROOT / name).exists()} == set()
    assert copied == sent
    users = [rest for word, rest in instructions() if word == "USER"]
    assert users == ["10001:10001"]
    assert [word for word, _ in instructions()].count("FROM") == 2
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = build["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {folder.split("/")[0] for folder in wheel} <= copied
    assert {build["project"]["readme"], *build["project"]["license-files"]} <= copied


async def migrated(url):
    """Makes the ledger's tables there."""
    ledger = open_ledger(url)
    await ledger.migrate()
    await ledger.close()


@pytest.mark.postgres
def test_the_roles_open_the_ledger_and_keep_temporal_out_of_it():
    server = PostgresServer()
    try:
        secrets = {"TEMPORAL_DB_PASSWORD": "it's $1", "HEADBAY_LEDGER_PASSWORD": 'a"b\\c'}
        psql = [str(server.program("psql")), "--no-psqlrc", "--dbname", server.url]
        roles = ROOT / "deploy" / "postgres" / "roles.sql"
        subprocess.run([*psql, "-q", "-f", roles], env=os.environ | secrets, check=True)

        host = psycopg.conninfo.conninfo_to_dict(server.url)["host"]
        asyncio.run(migrated(f"postgresql://headbay@/headbay?host={host}"))
        with psycopg.connect(server.url) as connection:
            allowed = connection.execute(
                "SELECT has_database_privilege('temporal', 'headbay', 'CONNECT'), "
                "rolcreatedb, rolsuper FROM pg_roles WHERE rolname = 'temporal'"
            ).fetchone()
            stored = connection.execute(
                "SELECT rolname FROM pg_authid WHERE rolpassword LIKE 'SCRAM-SHA-256%' "
                "AND rolname IN ('temporal', 'headbay') ORDER BY 1"
            ).fetchall()
        assert allowed == (False, True, False)
        assert stored == [("headbay",), ("temporal",)]
    finally:
        server.stop()
