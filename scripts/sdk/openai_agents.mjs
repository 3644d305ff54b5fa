// @openai/agents-realtime: a RealtimeSession over its WebSocket transport, which runs tools, truncates what was not heard, and keeps a history.

import { RealtimeAgent, RealtimeSession, tool } from '@openai/agents-realtime';
import { Report, Server, assert, settles, speech, talk, until, version } from './harness.mjs';

const RATE = 24_000;

/** A connected session that notes what it saw. */
async function connect(server, tools = []) {
  const agent = new RealtimeAgent({ name: 'assistant', instructions: 'Be brief.', tools });
  const session = new RealtimeSession(agent, { transport: 'websocket', model: 'gpt-realtime' });
  const saw = { audio: new Map(), order: [], interrupted: 0, ends: [], stopped: 0, toolEnds: [], errors: [], events: [] };
  session.on('audio', ({ data, responseId }) => {
    saw.audio.set(responseId, (saw.audio.get(responseId) ?? 0) + data.byteLength);
    saw.order.push(responseId);
  });
  session.on('audio_interrupted', () => {
    saw.interrupted += 1;
    saw.order.push('interrupted');
  });
  session.on('audio_stopped', () => (saw.stopped += 1));
  session.on('agent_end', (_context, _agent, output) => saw.ends.push(output));
  session.on('agent_tool_end', (_context, _agent, used, result, { toolCall }) => saw.toolEnds.push({ name: used.name, result, toolCall }));
  session.on('error', ({ error }) => saw.errors.push(JSON.stringify(error, Object.getOwnPropertyNames(error ?? {}))));
  session.on('transport_event', (event) => saw.events.push(event));
  await session.connect({ apiKey: 'ek_unused', url: `ws://${server.address}/v1/realtime?model=gpt-realtime` });
  await until('session.updated', () => saw.events.some((event) => event.type === 'session.updated'));
  return { session, saw };
}

const say = (session, clip) =>
  talk((piece) => session.sendAudio(piece.buffer.slice(piece.byteOffset, piece.byteOffset + piece.length)), speech(RATE, clip), RATE);

const messages = (session, role) => session.history.filter((item) => item.type === 'message' && item.role === role);

const ofType = (saw, type) => saw.events.filter((event) => event.type === type);

/** What the history holds as the words of an item. */
const words = (item) => item.content.map((part) => part.transcript ?? part.text ?? '').join('');

function noErrors(saw) {
  assert(saw.errors.length === 0, `errors: ${saw.errors.join('; ')}`);
}

async function withServer(flags, check) {
  const server = await Server.start(...flags);
  try {
    return await check(server);
  } finally {
    await server.stop();
  }
}

const report = new Report('openai_agents', version('@openai/agents-realtime'));

await report.run('audio turn', () =>
  withServer([], async (server) => {
    const { session, saw } = await connect(server);
    for (let turn = 1; turn <= 2; turn++) {
      await say(session, 'weather');
      await until(`the end of answer ${turn}`, () => saw.ends.length === turn);
    }
    session.close();
    noErrors(saw);
    assert(saw.audio.size === 2, `audio of ${saw.audio.size} responses`);
    const bytes = [...saw.audio.values()];
    // 1.5 s each, as the server is told.
    assert(bytes.every((count) => count > RATE), `${bytes} bytes of audio`);
    // The SDK takes the second turn for an interruption of what may still be playing.
    assert(saw.stopped === 2, `${saw.stopped} ends of audio`);
    assert(ofType(saw, 'response.done').every((event) => event.response.status === 'completed'), 'a response was cut');
    assert(saw.ends.every((text) => text.length > 0), 'an answer without transcript');
    return `${bytes.join(' and ')} bytes; ${await settles(server, 1)}`;
  }),
);

await report.run('history', () =>
  withServer([], async (server) => {
    const { session, saw } = await connect(server);
    for (let turn = 1; turn <= 2; turn++) {
      await say(session, turn === 1 ? 'weather' : 'order');
      await until(`the end of answer ${turn}`, () => saw.ends.length === turn);
    }
    // The SDK asks for the item once it was transcribed.
    await until('what the user said', () => messages(session, 'user').length === 2 && messages(session, 'user').every((item) => words(item)));
    const roles = session.history.map((item) => item.role);
    assert(roles.join() === 'user,assistant,user,assistant', `the history is ${roles}`);
    assert(
      messages(session, 'assistant').every((item, n) => item.status === 'completed' && words(item) === saw.ends[n]),
      `an answer is not as it was said: ${JSON.stringify(messages(session, 'assistant'))}`,
    );
    session.close();
    noErrors(saw);
    return `${roles.length} items; ${await settles(server, 1)}`;
  }),
);

await report.run('tool call', () =>
  withServer(['--tool-rate=1'], async (server) => {
    const called = [];
    const weather = tool({
      name: 'weather',
      description: 'The weather.',
      parameters: { type: 'object', properties: {}, required: [], additionalProperties: true },
      strict: false,
      execute: async (input) => {
        called.push(input);
        return 'sunny';
      },
    });
    const { session, saw } = await connect(server, [weather]);
    await say(session, 'weather');
    await until('the answer after the tool', () => saw.audio.size === 1 && saw.stopped === 1);
    session.close();
    noErrors(saw);
    assert(called.length === 1, `the tool ran ${called.length} times`);
    assert(typeof called[0] === 'object' && called[0] !== null, `its arguments are ${JSON.stringify(called[0])}`);
    assert(saw.toolEnds.length === 1 && saw.toolEnds[0].name === 'weather' && saw.toolEnds[0].result === 'sunny', JSON.stringify(saw.toolEnds));
    const item = session.history.find((one) => one.type === 'function_call');
    assert(item?.status === 'completed' && item.output === 'sunny', `the history holds ${JSON.stringify(item)}`);
    return `${JSON.stringify(called[0])}; ${await settles(server, 1)}`;
  }),
);

await report.run('barge-in', () =>
  withServer(['--response=constant(8s)'], async (server) => {
    const { session, saw } = await connect(server);
    await say(session, 'weather');
    const first = await until('the first answer', () => saw.order[0]);
    // Heard for a while.
    await until('half a second of it', () => saw.audio.get(first) > RATE);
    await say(session, 'stop');
    await until('the second answer', () => saw.audio.size === 2);
    await until('what stays of the first', () => saw.events.some((event) => event.type === 'conversation.item.truncated'));
    const cut = saw.events.find((event) => event.type === 'conversation.item.truncated');
    const done = saw.events.find((event) => event.type === 'response.done' && event.response.id === first);
    session.close();
    noErrors(saw);
    assert(saw.interrupted === 1, `${saw.interrupted} interruptions`);
    const after = saw.order.slice(saw.order.indexOf('interrupted')).filter((id) => id === first).length;
    assert(after === 0, `${after} pieces of the old answer after the interruption`);
    assert(done?.response.status === 'cancelled', `the old response ended as ${done?.response.status}`);
    const ms = saw.audio.get(first) / 48;
    assert(cut.audio_end_ms > 0 && cut.audio_end_ms <= ms, `cut at ${cut.audio_end_ms} of ${ms} ms`);
    return `cut at ${cut.audio_end_ms} of ${Math.round(ms)} ms; ${await settles(server, 1)}`;
  }),
);

await report.run('text', () =>
  withServer([], async (server) => {
    const { session, saw } = await connect(server);
    session.sendMessage('What is the weather like?');
    await until('the answer', () => saw.ends.length === 1 && saw.stopped === 1);
    const user = messages(session, 'user').map(words);
    session.close();
    noErrors(saw);
    assert(user.join() === 'What is the weather like?', `the history holds ${JSON.stringify(user)}`);
    return settles(server, 1);
  }),
);

report.done();
