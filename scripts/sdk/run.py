"""Runs the SDK checks and prints what each client saw: see sdk.sh.

A client is a script of this folder: `NAME.py` with `requirements/NAME.txt`, or `NAME.mjs`, whose packages are all in `package.json`. `NAME_sdk.py` is for a
package that is called NAME itself. It prints JSON lines {"client", "version", "feature", "ok", "detail"}; whatever else it says goes to a log.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "target/sdk"
# What CI runs: small to install, and quick.
FAST = ["openai_python", "google_genai", "openai_agents"]
# No check takes so long unless it hangs.
PATIENCE = 300


def clients():
    """All there are, by name."""
    python = {path.stem.removesuffix("_sdk"): path for path in HERE.glob("*.py")}
    python = {name: path for name, path in python.items() if (HERE / "requirements" / f"{name}.txt").exists()}
    node = {path.stem: path for path in HERE.glob("*.mjs") if path.stem != "harness"}
    return dict(sorted((python | node).items()))


def once(folder, what, make):
    """Calls `make()` unless `folder` was made of the same before."""
    stamp = folder / ".made-of"
    digest = hashlib.sha256(what).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    make()
    stamp.write_text(digest)


def python_of(client):
    """The interpreter of a client, with its packages."""
    requirements = HERE / "requirements" / f"{client}.txt"
    folder = WORK / client
    python = folder / "bin/python"

    def make():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", requirements]
        subprocess.run(install, check=True, stdout=sys.stderr)

    once(folder, requirements.read_bytes() + sys.version.encode(), make)
    return python


def node_folder():
    """A folder with the packages of all clients in JavaScript, and their scripts, because Node looks for packages beside the script."""
    folder = WORK / "node"
    files = [HERE / "package.json", HERE / "package-lock.json"]

    def make():
        for file in files:
            shutil.copy(file, folder)
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], check=True, cwd=folder, stdout=sys.stderr)

    once(folder, b"".join(file.read_bytes() for file in files), make)
    for script in HERE.glob("*.mjs"):
        shutil.copy(script, folder)
    return folder


def command(client, path):
    if path.suffix == ".py":
        return [python_of(client), path]
    return ["node", node_folder() / path.name]


def program():
    """What is checked."""
    if "AGENT_SERVER" not in os.environ:
        subprocess.run(["cargo", "build", "--quiet", "--release", "--package", "agent-server"], check=True, cwd=ROOT)
    return os.environ.get("AGENT_SERVER", str(ROOT / "target/release/agent-server"))


def lines_of(text):
    """The features that a script told."""
    for line in text.splitlines():
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict) and {"client", "version", "feature", "ok"} <= told.keys():
            yield told


def run(client, path, server):
    """The features of a client, and where its log is."""
    log = WORK / "logs" / f"{client}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    failure = lambda detail: {"client": client, "version": "", "feature": "script", "ok": False, "detail": detail}  # noqa: E731
    try:
        words = command(client, path)
    except (OSError, subprocess.CalledProcessError) as error:
        return [failure(f"its packages cannot be installed: {error}")], log
    with log.open("wb") as errors:
        env = os.environ | {"AGENT_SERVER": server, "SDK_ROOT": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, env=env, cwd=WORK, start_new_session=True)
        try:
            out, _ = process.communicate(timeout=PATIENCE)
            end = None if process.returncode in (0, 1) else f"exit code {process.returncode}"
        except subprocess.TimeoutExpired:
            # Its own group: the client and what it started.
            os.killpg(process.pid, signal.SIGKILL)
            out, _ = process.communicate()
            end = f"not over after {PATIENCE} s"
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        errors.write(out)
    told = list(lines_of(out.decode(errors="replace")))
    if end is None and process.returncode == 1 and all(line["ok"] for line in told):
        end = "exit code 1"
    if end is None and not told:
        end = "it told nothing"
    return told + ([failure(end)] if end else []), log


def table(results):
    """Clients by features."""
    features = list(dict.fromkeys(line["feature"] for told in results.values() for line in told))
    rows = [["client", "version", *features]]
    for client, told in results.items():
        version = next((line["version"] for line in told if line["version"]), "")
        cells = []
        for feature in features:
            oks = [line["ok"] for line in told if line["feature"] == feature]
            cells.append("-" if not oks else "ok" if all(oks) else "FAILED")
        rows.append([client, version, *cells])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def main():
    every = clients()
    parser = argparse.ArgumentParser(prog="scripts/sdk.sh", description="Stock SDKs against agent-server.")
    parser.add_argument("client", nargs="*", help="all of them if none is named")
    parser.add_argument("--fast", action="store_true", help=f"only {', '.join(FAST)}")
    parser.add_argument("--retries", type=int, default=0, help="how often a client that failed is tried again: speech goes by the clock, and a machine "
                        "that stands still for half a second splits a turn in two")
    parser.add_argument("--list", action="store_true", help="name the clients and end")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(every))
        return 0
    names = arguments.client or (FAST if arguments.fast else list(every))
    unknown = [name for name in names if name not in every]
    if unknown:
        parser.error(f"no client {', '.join(unknown)}; there are {', '.join(every)}")
    server = program()
    results, failed = {}, []
    for name in names:
        start = time.monotonic()
        print(f"{name} ..", file=sys.stderr, flush=True)
        for tries_left in range(arguments.retries, -1, -1):
            results[name], log = run(name, every[name], server)
            wrong = [line for line in results[name] if not line["ok"]]
            if not wrong:
                break
            if tries_left:
                for line in wrong:
                    print(f"{name}: {line['feature']} FAILED, tried again: {line.get('detail', '')}", file=sys.stderr, flush=True)
        print(f"{name}: {f'{len(wrong)} FAILED' if wrong else 'ok'}, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        failed += [f"{name}: {line['feature']}: {line.get('detail', '')} (log: {log.relative_to(ROOT)})" for line in wrong]
    print(table(results))
    if failed:
        print("\n" + "\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
