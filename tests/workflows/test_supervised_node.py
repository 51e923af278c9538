"""A node worker under a service manager, and taints, on a real cluster."""

import asyncio
import signal
import socket

from support.cluster import until

STEP = {"steps": [{"name": "s", "run": "env; sleep 60", "grace": 0}]}


async def test_a_node_is_ready_once_it_has_registered_and_tells_when_it_stops(cluster, tmp_path):
    """READY comes after the pool may use it; the payload sees no socket; STOPPING ends it."""
    loop = asyncio.get_running_loop()
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.setblocking(False)

        async def hear(word):
            async with asyncio.timeout(60):
                while word not in (said := (await loop.sock_recv(manager, 4096)).decode()):
                    pass
            return said

        command = cluster.parts["n1"].command
        supervised = [arg if arg != "n1" else "n2" for arg in command]
        manage = ["env", f"NOTIFY_SOCKET={path}", "WATCHDOG_USEC=1500000"]
        part = cluster.add("n2", [*manage, *supervised, "--taint", "kept=yes:NoSchedule"])
        assert await hear("READY=1") == "READY=1\nSTATUS=n2: up, 0 running"
        assert (await cluster.node("n2"))["state"] == "up"
        await hear("WATCHDOG=1")
        await cluster.node_up("n2")
        placement = {
            "nodeSelector": {},
            "tolerations": [{"key": "kept", "operator": "Exists"}],
        }
        cluster.parts["n1"].kill(signal.SIGTERM)
        await until(lambda: _lost(cluster), 40, "n1 lost")
        await cluster.submit("without", STEP)
        tolerant = {"steps": [STEP["steps"][0] | {"placement": placement}]}
        await cluster.submit("with", tolerant)
        await hear("STATUS=n2: up, 1 running")
        assert (await cluster.step("with", "s"))["attempts"][0]["node"] == "n2"
        rows = await cluster.query("headbay/pool/default", "explain", {"workload": "without"})
        codes = {reason["code"] for row in rows for reason in row["reasons"]}
        assert "NODES_TAINTED" in codes
        (log,) = (tmp_path / "state/nodes/n2").glob("spool/*/out.log")
        shown = await until(lambda: _text(log), 20, "the environment is printed")
        assert "HEADBAY_ATTEMPT=" in shown
        assert "NOTIFY_SOCKET" not in shown
        assert "WATCHDOG" not in shown
        part.kill(signal.SIGTERM)
        await hear("STOPPING=1")


async def _lost(cluster):
    return (await cluster.node("n1"))["state"] == "lost"


async def _text(log):
    text = log.read_text()
    return text if "HEADBAY_ATTEMPT=" in text else None
