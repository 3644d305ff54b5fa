// What the SDK checks in JavaScript share; as harness.py has it for those in Python.

import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const ROOT = process.env.SDK_ROOT ?? path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');

/** `agent-server serve` on free ports; flags as on its command line. */
export class Server {
  static async start(...flags) {
    const program = process.env.AGENT_SERVER ?? path.join(ROOT, 'target/release/agent-server');
    const common = ['--listen=127.0.0.1:0', '--think=50ms', '--response=constant(1500ms)', '--stop-on-stdin-eof'];
    const name = (flag) => flag.split('=')[0];
    const left = common.filter((flag) => !flags.some((own) => name(own) === name(flag)));
    const child = spawn(program, ['serve', ...left, ...flags], { stdio: ['pipe', 'pipe', 'inherit'] });
    const lines = createInterface({ input: child.stdout });
    const ready = await new Promise((resolve, reject) => {
      lines.once('line', (line) => resolve(JSON.parse(line)));
      child.once('error', reject);
      child.once('exit', (code) => reject(new Error(`agent-server ended with ${code} before it was ready`)));
    });
    return new Server(child, ready);
  }

  constructor(child, ready) {
    Object.assign(this, { child, ready, address: ready.address, admin: ready.admin });
  }

  async snapshot() {
    return (await fetch(`http://${this.admin}/snapshot`)).json();
  }

  /** The snapshot once no session is active: every client is gone and counted. */
  async settled(seconds = 10) {
    for (const end = Date.now() + seconds * 1000; ; await sleep(50)) {
      const snapshot = await this.snapshot();
      if (snapshot.active === 0 || Date.now() > end) return snapshot;
    }
  }

  async stop() {
    if (this.child.exitCode !== null) return;
    const over = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.stdin.end();
    const late = setTimeout(() => this.child.kill('SIGKILL'), 10_000);
    await over;
    clearTimeout(late);
  }
}

/** The samples of a RIFF file of mono PCM16, and their rate. */
function wav(bytes) {
  let rate = 0;
  for (let at = 12; at + 8 <= bytes.length; ) {
    const size = bytes.readUInt32LE(at + 4);
    const name = bytes.toString('latin1', at, at + 4);
    if (name === 'fmt ') rate = bytes.readUInt32LE(at + 12);
    if (name === 'data') {
      const end = Math.min(at + 8 + size, bytes.length);
      const samples = [];
      for (let n = at + 8; n + 1 < end; n += 2) samples.push(bytes.readInt16LE(n));
      return { rate, samples };
    }
    at += 8 + size + (size % 2);
  }
  throw new Error('no audio in the clip');
}

/** A shipped clip as mono PCM16 at `rate` Hz, and silence after it. */
export function speech(rate, name = 'weather') {
  const { rate: own, samples } = wav(readFileSync(path.join(ROOT, `profiles/audio/${name}.wav`)));
  const count = Math.floor((samples.length * rate) / own);
  const out = Buffer.alloc(2 * count);
  for (let n = 0; n < count; n++) {
    const at = (n * own) / rate;
    const low = Math.floor(at);
    const high = Math.min(low + 1, samples.length - 1);
    out.writeInt16LE(Math.trunc(samples[low] + (samples[high] - samples[low]) * (at - low)), 2 * n);
  }
  return Buffer.concat([out, silence(rate, 0.8)]);
}

export function silence(rate, seconds) {
  return Buffer.alloc(2 * Math.floor(rate * seconds));
}

/** Calls `send(piece)` for each piece of `ms` of the audio, in real time. */
export async function talk(send, pcm, rate, ms = 20) {
  const size = (2 * rate * ms) / 1000;
  const start = performance.now();
  for (let n = 0; n * size < pcm.length; n++) {
    await sleep(Math.max(0, start + n * ms - performance.now()));
    await send(pcm.subarray(n * size, (n + 1) * size));
  }
}

export function assert(holds, what) {
  if (!holds) throw new Error(what);
}

/** Waits until `look()` gives something true, and gives that. */
export async function until(what, look, seconds = 20) {
  for (const end = Date.now() + seconds * 1000; ; await sleep(10)) {
    const found = look();
    if (found) return found;
    if (Date.now() > end) throw new Error(`never: ${what}`);
  }
}

/** Every session so far is over, counted, and was completed. */
export async function settles(server, sessions) {
  const snapshot = await server.settled();
  const ended = Object.values(snapshot.ended).reduce((sum, count) => sum + count, 0);
  const all = { active: snapshot.active, started: snapshot.started, ended, completed: snapshot.ended.completed };
  const exact = all.active === 0 && all.started === sessions && all.ended === sessions && all.completed === sessions;
  assert(exact, `${sessions} sessions were made, and the counters say ${JSON.stringify(all)}`);
  return `${sessions} completed`;
}

/** Collects features of one client; `done()` ends the script. */
export class Report {
  failed = 0;

  constructor(client, version) {
    Object.assign(this, { client, version });
  }

  line(feature, ok, detail = '') {
    this.failed += ok ? 0 : 1;
    console.log(JSON.stringify({ client: this.client, version: this.version, feature, ok, detail }));
  }

  /** Runs a check: what it throws is a failure, what it gives is the detail. */
  async run(feature, check, seconds = 60) {
    let late;
    const bound = new Promise((_, reject) => {
      late = setTimeout(() => reject(new Error(`not over after ${seconds} s`)), seconds * 1000);
    });
    try {
      this.line(feature, true, String((await Promise.race([check(), bound])) ?? ''));
    } catch (error) {
      console.error(error);
      this.line(feature, false, String(error?.message ?? error).slice(0, 200));
    } finally {
      clearTimeout(late);
    }
  }

  done() {
    process.exit(this.failed ? 1 : 0);
  }
}

/** The version of an installed package. */
export function version(name) {
  return JSON.parse(readFileSync(new URL(`./node_modules/${name}/package.json`, import.meta.url))).version;
}
