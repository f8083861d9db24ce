"""The cost of parties that connect to the learner instead of listening: rounds and the learner's time, in one run.

    python -m scripts.benchmarks.outbound [--rounds 100] [--pairs 3] [--parties 5,50] [--features 50,1000]

The same parties serve two learners: one connects to them, to the other they connect. Runs of both alternate, and one
JSON line for each K and d has the medians and their ratios. The goals are 1.3 for a round and 1.2 for the learner's
processor. A last line has what connections cost that nobody uses: the learner's memory and share of a processor.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from parley.common.client.outbound import UPGRADE
from parley.common.routes import CONNECT
from parley.common.service.tokens import hash_token, new_token
from scripts.benchmarks import rounds as own
from scripts.loopback import COMMANDS, cpu_seconds, free_ports, make_ledgers, processes, resident_mb, wait_until_ready

LEARNERS = ("direct", "outbound")
_IDLE_SECONDS = 45.0


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description="Rounds of parties that connect themselves, beside direct ones.")
    parser.add_argument("--rounds", type=int, default=100, help="rounds of a run (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=3, help="how often both are measured (default: %(default)s)")
    parser.add_argument("--parties", default="5,50", help="numbers of parties (default: %(default)s)")
    parser.add_argument("--features", default="50,1000", help="numbers of features (default: %(default)s)")
    parser.add_argument("--idle", type=int, default=2000, help="connections that nobody uses (default: %(default)s)")
    options = parser.parse_args()
    for count in map(int, filter(None, options.parties.split(","))):
        for d in map(int, options.features.split(",")):
            with tempfile.TemporaryDirectory(prefix="parley-outbound-") as folder:
                print(json.dumps(measured(Path(folder), count, d, options.rounds, options.pairs)), flush=True)
    with tempfile.TemporaryDirectory(prefix="parley-outbound-") as folder:
        print(json.dumps(asyncio.run(idle(Path(folder), options.idle))), flush=True)


def measured(folder: Path, count: int, d: int, rounds: int, pairs: int) -> dict[str, object]:
    """Milliseconds a round, and of the learner's processor a round, of both learners; their ratios."""
    names = [f"party-{number}" for number in range(1, count + 1)]
    ports = dict(zip((*LEARNERS, *names), free_ports(2 + count), strict=True))
    user = new_token()
    write_settings(folder, d, ports, user)
    commands: dict[str, Sequence[str | Path]] = {
        name: [
            COMMANDS / f"parley-{'learner' if name in LEARNERS else 'party'}",
            "serve",
            "--config",
            folder / f"{name}.toml",
        ]
        for name in ports
    }
    for start in range(0, count, 4):
        make_ledgers(*(folder / f"{name}.toml" for name in names[start : start + 4]))
    times_by_name: dict[str, list[tuple[float, float]]] = {name: [] for name in LEARNERS}
    with processes(commands, folder) as running:
        for name, port in ports.items():  # fifty may take minutes
            wait_until_ready({name: f"http://127.0.0.1:{port}"})
        for _ in range(pairs):
            for name in LEARNERS:
                before = cpu_seconds(running[name].pid)
                _, times = own.watch(f"http://127.0.0.1:{ports[name]}", user, rounds + own.WARM_UP)
                spent = (cpu_seconds(running[name].pid) - before) / len(times) * 1000
                times_by_name[name].append(
                    ((times[-1] - times[own.WARM_UP - 1]) / (len(times) - own.WARM_UP) * 1000, spent)
                )
    medians = {
        name: [round(statistics.median(turns), 2) for turns in zip(*times_by_name[name], strict=True)]
        for name in LEARNERS
    }
    ratios = [round(b / a, 2) for a, b in zip(medians["direct"], medians["outbound"], strict=True)]
    line: dict[str, object] = {"benchmark": "outbound", "parties": count, "d": d}
    line |= {f"{name}_ms": values[0] for name, values in medians.items()}
    line |= {f"{name}_learner_cpu_ms": values[1] for name, values in medians.items()}
    return line | {"ratio": ratios[0], "cpu_ratio": ratios[1]}


async def idle(folder: Path, count: int) -> dict[str, object]:
    """The cost of idle connections for a learner: over a minute, after all have connected."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    (port,), token = free_ports(1), new_token()
    roster = "".join(
        f'[[parties]]\nname = "p{i}"\ntoken = "t"\nconnects_with = "{hash_token(f"{token}{i}")}"\n'
        for i in range(count)
    )
    user = f'[[users]]\nname = "u"\ntoken_hash = "{hash_token(new_token())}"\n'
    config = folder / "learner.toml"
    config.write_text(f'name = "learner"\nport = {port}\nstate = "{folder}/state"\n{user}{roster}', encoding="utf-8")
    with processes({"learner": [COMMANDS / "parley-learner", "serve", "--config", config]}, folder) as running:
        pid = running["learner"].pid
        await asyncio.to_thread(wait_until_ready, {"learner": f"http://127.0.0.1:{port}"})
        before, pings = resident_mb(pid), [0]
        few = asyncio.Semaphore(100)  # at a time: beyond `limits.connections` a stranger is turned away
        tasks = [asyncio.create_task(_healthy(port, f"{token}{i}", pings, few)) for i in range(count)]
        await asyncio.sleep(20)
        used, n_pings = cpu_seconds(pid), pings[0]
        await asyncio.sleep(_IDLE_SECONDS)
        share, n_pings = (cpu_seconds(pid) - used) / _IDLE_SECONDS, pings[0] - n_pings
        kb = (resident_mb(pid) - before) * 1024 / count
        for task in tasks:
            task.cancel()
        failed = sum(task.done() and not task.cancelled() for task in tasks)
        await asyncio.gather(*tasks, return_exceptions=True)
    line = {"benchmark": "idle connections", "count": count, "failed": failed, "kb_each": round(kb, 1)}
    return line | {"cpu_share": round(share, 3), "pings_a_second": round(n_pings / _IDLE_SECONDS, 1)}


async def _healthy(port: int, token: str, pings: list[int], few: asyncio.Semaphore) -> None:
    """A party that connects, and answers that it is well."""
    async with few:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"GET {CONNECT.at()} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: {UPGRADE}\r\n"
            f"Authorization: Bearer {token}\r\n\r\n".encode()
        )
        if b" 101 " not in await reader.readuntil(b"\r\n\r\n"):
            raise ConnectionRefusedError
    while True:
        await reader.readuntil(b"\r\n\r\n")
        pings[0] += 1
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"status":"ok"}')


def write_settings(folder: Path, d: int, ports: dict[str, int], user: str) -> None:
    """Parties that know both learners, and learners that know the parties, each in its own way."""
    tokens = {name: new_token() for name in ports}
    own.write_settings(
        folder, d, {"learner": ports["direct"]} | {k: p for k, p in ports.items() if k not in LEARNERS}, user
    )
    text = (folder / "learner.toml").read_text(encoding="utf-8").partition("[[parties]]")[0]
    rosters = dict.fromkeys(LEARNERS, "")
    for name in (name for name in ports if name not in LEARNERS):
        path = folder / f"{name}.toml"
        settings = (
            path.read_text(encoding="utf-8").partition("[[learners]]")[0].replace("epsilon = 10.0", "epsilon = 100.0")
        )
        for learner in LEARNERS:
            settings += f'[[learners]]\nname = "{learner}"\ntoken_hash = "{hash_token(tokens[learner])}"\n'
            rosters[learner] += f'[[parties]]\nname = "{name}"\ntoken = "{tokens[learner]}"\n'
        rosters["direct"] += f'url = "http://127.0.0.1:{ports[name]}"\n'
        rosters["outbound"] += f'connects_with = "{hash_token(tokens[name])}"\n'
        settings += (
            f'[[outbound]]\nname = "outbound"\nurl = "http://127.0.0.1:{ports["outbound"]}"\ntoken = "{tokens[name]}"\n'
        )
        path.write_text(settings, encoding="utf-8")
    for learner in LEARNERS:
        head = text.replace(f"port = {ports['direct']}", f"port = {ports[learner]}").replace(
            '/learner"', f'/{learner}"'
        )
        head = head.replace('name = "learner"', f'name = "{learner}"')
        (folder / f"{learner}.toml").write_text(head + rosters[learner], encoding="utf-8")


if __name__ == "__main__":
    main()
