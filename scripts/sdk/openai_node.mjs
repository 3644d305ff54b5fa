// openai for Node: OpenAIRealtimeWS, which speaks to TLS only.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import OpenAI from 'openai';
import { OpenAIRealtimeWS } from 'openai/realtime/ws';
import { Report, Server, assert, settles, speech, talk, until, version } from './harness.mjs';

const RATE = 24_000;

/** A server with a certificate of its own, and connections to it. */
async function withServer(flags, check) {
  const folder = mkdtempSync(path.join(tmpdir(), 'sdk-'));
  const certificate = path.join(folder, 'cert.pem');
  const server = await Server.start('--tls-listen=127.0.0.1:0', `--tls-self-signed=${certificate}`, ...flags);
  try {
    return await check(server, (session) => connect(server, readFileSync(certificate), session));
  } finally {
    await server.stop();
    rmSync(folder, { recursive: true });
  }
}

/** A connection whose session is as `session` says, and what it saw. */
async function connect(server, ca, session) {
  const client = new OpenAI({ apiKey: 'unused', baseURL: `https://${server.ready.tls_address}/v1` });
  const realtime = new OpenAIRealtimeWS({ model: 'gpt-realtime', options: { ca } }, client);
  const saw = { events: [], errors: [], closed: undefined };
  realtime.on('event', (event) => saw.events.push(event));
  realtime.on('error', (error) => saw.errors.push(error));
  realtime.socket.on('close', (code) => (saw.closed = code));
  await until('session.created', () => of(saw, 'session.created').length);
  realtime.send({ type: 'session.update', session: { type: 'realtime', ...session } });
  await until('session.updated', () => of(saw, 'session.updated').length);
  return { realtime, saw };
}

const of = (saw, type) => saw.events.filter((event) => event.type === type);

const say = (realtime, clip) =>
  talk((piece) => realtime.send({ type: 'input_audio_buffer.append', audio: piece.toString('base64') }), speech(RATE, clip), RATE);

/** Bytes of audio of a response. */
const bytes = (saw, id) =>
  of(saw, 'response.output_audio.delta')
    .filter((event) => event.response_id === id)
    .reduce((sum, event) => sum + Buffer.from(event.delta, 'base64').length, 0);

const noErrors = (saw) => assert(saw.errors.length === 0, `errors: ${saw.errors.map((error) => error.message).join('; ')}`);

async function close(realtime, saw) {
  realtime.close();
  await until('the close', () => saw.closed !== undefined);
}

/** The response that is done after so many others. */
const done = (saw, before) => until('response.done', () => of(saw, 'response.done')[before]?.response);

const report = new Report('openai_node', version('openai'));

await report.run('audio turn', () =>
  withServer([], async (server, open) => {
    const { realtime, saw } = await open({ audio: { input: { transcription: { model: 'gpt-4o-mini-transcribe' } } } });
    await say(realtime, 'weather');
    const response = await done(saw, 0);
    await until('what the user said', () => of(saw, 'conversation.item.input_audio_transcription.completed').length);
    await close(realtime, saw);
    noErrors(saw);
    assert(response.status === 'completed', `the response ended as ${response.status}`);
    assert(bytes(saw, response.id) > RATE, `${bytes(saw, response.id)} bytes of audio`);
    const said = of(saw, 'response.output_audio_transcript.delta').map((event) => event.delta).join('');
    const [all] = of(saw, 'response.output_audio_transcript.done').map((event) => event.transcript);
    assert(said.length > 0 && said === all, `the pieces of the transcript are ${said}, all of it ${all}`);
    assert(response.output[0].content[0].transcript === all, JSON.stringify(response.output));
    assert(of(saw, 'conversation.item.input_audio_transcription.completed')[0].transcript.length > 0, 'nothing was understood');
    return `${bytes(saw, response.id)} bytes; ${await settles(server, 1)}`;
  }),
);

await report.run('manual turn', () =>
  withServer([], async (server, open) => {
    const { realtime, saw } = await open({ audio: { input: { turn_detection: null } } });
    await say(realtime, 'weather');
    assert(of(saw, 'response.created').length === 0, 'an answer before it was asked for');
    realtime.send({ type: 'input_audio_buffer.commit' });
    await until('input_audio_buffer.committed', () => of(saw, 'input_audio_buffer.committed').length);
    realtime.send({ type: 'response.create', response: { metadata: { turn: 'one' } } });
    const response = await done(saw, 0);
    await close(realtime, saw);
    noErrors(saw);
    assert(of(saw, 'input_audio_buffer.speech_started').length === 0, 'speech was detected');
    assert(of(saw, 'response.created')[0].response.metadata?.turn === 'one', 'the metadata is gone');
    assert(response.status === 'completed' && bytes(saw, response.id) > 0, `${response.status}, ${bytes(saw, response.id)} bytes`);
    return settles(server, 1);
  }),
);

await report.run('tool call', () =>
  withServer(['--tool-rate=1'], async (server, open) => {
    const tools = [{ type: 'function', name: 'weather', description: 'The weather.', parameters: { type: 'object', properties: {} } }];
    const { realtime, saw } = await open({ tools });
    await say(realtime, 'weather');
    const response = await done(saw, 0);
    const [call] = of(saw, 'response.function_call_arguments.done');
    const args = JSON.parse(call.arguments);
    assert(response.output[0].type === 'function_call' && response.output[0].name === 'weather', JSON.stringify(response.output));
    assert(response.output[0].call_id === call.call_id && response.output[0].arguments === call.arguments, JSON.stringify(call));
    realtime.send({ type: 'conversation.item.create', item: { type: 'function_call_output', call_id: call.call_id, output: 'sunny' } });
    realtime.send({ type: 'response.create' });
    const answer = await done(saw, 1);
    await close(realtime, saw);
    noErrors(saw);
    assert(answer.status === 'completed' && bytes(saw, answer.id) > 0, `${answer.status}, ${bytes(saw, answer.id)} bytes`);
    return `${JSON.stringify(args)}; ${await settles(server, 1)}`;
  }),
);

await report.run('barge-in', () =>
  withServer(['--response=constant(8s)'], async (server, open) => {
    const { realtime, saw } = await open({});
    await say(realtime, 'weather');
    const first = (await until('response.created', () => of(saw, 'response.created')[0])).response.id;
    await until('half a second of it', () => bytes(saw, first) > RATE);
    await say(realtime, 'stop');
    const response = await done(saw, 0);
    assert(response.id === first && response.status === 'cancelled', `${response.id} ended as ${response.status}`);
    assert(response.status_details?.reason === 'turn_detected', JSON.stringify(response.status_details));
    const ended = saw.events.findIndex((event) => event.type === 'response.done');
    const item = of(saw, 'response.output_audio.delta')[0].item_id;
    realtime.send({ type: 'conversation.item.truncate', item_id: item, content_index: 0, audio_end_ms: 300 });
    const cut = await until('conversation.item.truncated', () => of(saw, 'conversation.item.truncated')[0]);
    await until('the second answer', () => of(saw, 'response.output_audio.delta').some((event) => event.response_id !== first));
    await close(realtime, saw);
    noErrors(saw);
    const stale = saw.events.slice(ended).filter((event) => event.type === 'response.output_audio.delta' && event.response_id === first).length;
    assert(stale === 0, `${stale} pieces of the old answer after its end`);
    assert(cut.item_id === item && cut.audio_end_ms === 300, JSON.stringify(cut));
    return settles(server, 1);
  }),
);

await report.run('errors', () =>
  withServer([], async (server, open) => {
    const { realtime, saw } = await open({});
    realtime.send({ type: 'response.cancel', event_id: 'mine' });
    realtime.send({ type: 'no.such.event' });
    await until('two errors', () => saw.errors.length === 2);
    assert(saw.errors[0].error?.code === 'response_cancel_not_active', saw.errors[0].message);
    assert(saw.errors[0].error?.event_id === 'mine', 'the error does not say what caused it');
    // The session goes on.
    await say(realtime, 'order');
    const response = await done(saw, 0);
    await close(realtime, saw);
    assert(response.status === 'completed' && saw.errors.length === 2, `${response.status}, ${saw.errors.length} errors`);
    return settles(server, 1);
  }),
);

report.done();
