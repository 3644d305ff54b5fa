// @google/genai for Node: its Live API, over a plain socket (with two slashes before the path, and the key in the query).

import { GoogleGenAI, Modality } from '@google/genai';
import { Report, Server, assert, settles, speech, talk, until, version } from './harness.mjs';

const RATE = 16_000;
const MIME = 'audio/pcm;rate=16000';
// The harness lets an answer last 1.5 s; the agent speaks PCM16 at 24 kHz.
const ANSWER = 1500 * 48;

/** A session, and the turns that its callbacks saw. */
async function connect(server, config = {}) {
  const ai = new GoogleGenAI({ apiKey: 'none', httpOptions: { baseUrl: `http://${server.address}` } });
  const turn = () => ({ audio: 0, heard: '', said: '', calls: [], cancelled: [], interrupted: false, generated: false, complete: false, stale: 0 });
  const saw = { turns: [], now: turn(), handles: [], closed: undefined, errors: [] };
  const session = await ai.live.connect({
    model: 'gemini-live',
    config: { responseModalities: [Modality.AUDIO], ...config },
    callbacks: {
      onmessage: (message) => {
        const { now } = saw;
        const content = message.serverContent ?? {};
        const bytes = message.data ? Buffer.from(message.data, 'base64').length : 0;
        now.audio += bytes;
        now.stale += now.interrupted ? bytes : 0;
        now.calls.push(...(message.toolCall?.functionCalls ?? []));
        now.cancelled.push(...(message.toolCallCancellation?.ids ?? []));
        now.heard += content.inputTranscription?.text ?? '';
        now.said += content.outputTranscription?.text ?? '';
        now.interrupted ||= content.interrupted === true;
        now.generated ||= content.generationComplete === true;
        if (message.sessionResumptionUpdate) saw.handles.push(message.sessionResumptionUpdate.newHandle);
        if (content.turnComplete) {
          saw.turns.push({ ...now, complete: true, tokens: message.usageMetadata?.totalTokenCount });
          saw.now = turn();
        }
      },
      onerror: (error) => saw.errors.push(error),
      onclose: (event) => (saw.closed = { code: event.code, reason: event.reason }),
    },
  });
  return { session, saw };
}

const say = (session, clip) =>
  talk((piece) => session.sendRealtimeInput({ audio: { data: piece.toString('base64'), mimeType: MIME } }), speech(RATE, clip), RATE);

const nth = (saw, n) => until(`turn ${n}`, () => saw.turns[n]);

function completed(turn) {
  assert(turn.complete && turn.generated && !turn.interrupted && turn.tokens > 0, JSON.stringify(turn));
  assert(turn.audio === ANSWER, `${turn.audio} bytes of audio`);
}

async function close({ session, saw }) {
  session.close();
  await until('the close', () => saw.closed);
  assert(saw.errors.length === 0, `errors: ${saw.errors.map((error) => error.message).join('; ')}`);
}

const text = (session, words) => session.sendClientContent({ turns: [{ role: 'user', parts: [{ text: words }] }] });

const report = new Report('google_genai_node', version('@google/genai'));
const server = await Server.start();

await report.run('audio turns', async () => {
  const { session, saw } = await connect(server, { inputAudioTranscription: {}, outputAudioTranscription: {}, sessionResumption: {} });
  for (const [n, clip] of ['weather', 'order'].entries()) {
    await say(session, clip);
    const turn = await nth(saw, n);
    completed(turn);
    assert(turn.heard.split(' ').length > 1 && turn.said.split(' ').length === 3, JSON.stringify(turn));
  }
  await until('a handle after each turn', () => saw.handles.length === 3);
  await close({ session, saw });
  return `${saw.turns[1].audio} bytes of audio, heard ${saw.turns[1].heard.split(' ').length} words`;
});

await report.run('tool call', async () => {
  const tools = [{ functionDeclarations: [{ name: 'lookup', description: 'looks an order up' }] }];
  const { session, saw } = await connect(server, { tools });
  text(session, 'please call lookup');
  const call = await until('a tool call', () => saw.now.calls[0]);
  assert(call.name === 'lookup' && call.args.query === 'please call lookup', JSON.stringify(call));
  session.sendToolResponse({ functionResponses: [{ id: call.id, name: call.name, response: { order: 'on its way' } }] });
  completed(await nth(saw, 0));
  await close({ session, saw });
  return JSON.stringify(call.args);
});

await report.run('barge-in', async () => {
  const { session, saw } = await connect(server);
  text(session, 'talk');
  await until('audio', () => saw.now.audio);
  await say(session, 'stop');
  const turn = await nth(saw, 0);
  assert(turn.interrupted && !turn.generated && turn.stale === 0 && turn.audio < ANSWER, JSON.stringify(turn));
  completed(await nth(saw, 1));
  await close({ session, saw });
  return `${turn.audio} bytes before it, 0 after it`;
});

await report.run('manual activity', async () => {
  const { session, saw } = await connect(server, { realtimeInputConfig: { automaticActivityDetection: { disabled: true } } });
  session.sendRealtimeInput({ activityStart: {} });
  await say(session, 'weather');
  session.sendRealtimeInput({ activityEnd: {} });
  completed(await nth(saw, 0));
  await close({ session, saw });
});

await report.run('clean close', () => settles(server, 4));

await report.run('bad input', async () => {
  const { session, saw } = await connect(server);
  session.sendRealtimeInput({ audio: { data: 'AAAA', mimeType: MIME } });
  const { code, reason } = await until('the close', () => saw.closed);
  assert(code === 1007 && reason.includes('whole samples'), `${code} ${reason}`);
  return `${code} ${reason}`;
});

await server.stop();
report.done();
