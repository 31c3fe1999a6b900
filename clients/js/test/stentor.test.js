/** The rules of the client, each on every transport it holds for. */

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { gzipSync } from 'node:zlib'
import { connect, watch } from '../stentor.js'
import { cases, keep, open, TRANSPORTS } from './cases.js'
import { closing, quiet, serve, sleep, until, waits } from './support.js'

/** A test for each transport. */
function each(name, body) {
  for (const transport of TRANSPORTS) {
    test(`${name} (${transport})`, async () => {
      const server = await serve()
      await body(server, open(server, { transport }), transport)
    })
  }
}

for (const { name, body } of cases) each(name, body)

test('the module is under 7,500 bytes compressed, as it is read', () => {
  const source = readFileSync(new URL('../stentor.js', import.meta.url))
  const bytes = gzipSync(source, { level: 9 }).length
  assert.ok(bytes < 7500, `${bytes} bytes`)
  assert.doesNotMatch(source.toString(), /^import|require\(/m, 'no dependencies')
  assert.ok(source.toString().split('\n').every((line) => line.length <= 100))
})

each('a publisher may call events as it likes', async (server, live) => {
  const a = keep(live, '/a')
  const events = ['gap', 'delete', 'error', 'open', 'message', 'goal']
  server.publish('/a', 'first')
  await until(() => a.values.length)
  for (const event of events) server.publish('/a', event, { event })
  await until(() => a.values.length === events.length + 1)
  assert.deepEqual(a.messages.map(({ event }) => event), [undefined, ...events])
  assert.deepEqual([a.gaps, a.deleted], [[], []])
})

each('many watches are one connection', async (server, live) => {
  const kept = Array.from({ length: 50 }, (_, i) => keep(live, `/t/${i}`))
  for (let i = 0; i < 50; i++) server.publish(`/t/${i}`, i)
  await until(() => kept.every(({ values }, i) => values[0] === i))
  await quiet()
  // One that is being replaced may end a moment later, and a poll begins anew.
  await until(() => server.streams.size === 1)
  if (kept[0].states.at(-1).transport !== 'poll') assert.equal(server.requests.length, 1)
})

each('a late watch has the last known values at once', async (server, live) => {
  const first = keep(live, '/q/*')
  server.publish('/q/a', 1)
  server.publish('/q/b', 1)
  server.publish('/q/b', 2)
  await until(() => first.values.length >= 2 && first.values.at(-1) === 2)
  const asked = server.requests.length
  const late = keep(live, '/q/*')
  assert.deepEqual(late.values, [], 'not before watch has returned')
  await Promise.resolve()
  const heard = late.messages.map(({ topic, data }) => [topic, data])
  assert.deepEqual(heard, [['/q/a', 1], ['/q/b', 2]])
  assert.equal(late.states.length, 1)
  server.publish('/q/a', 3)
  await until(() => late.values.at(-1) === 3 && first.values.at(-1) === 3)
  assert.deepEqual(late.values, [1, 2, 3])
  assert.ok(first.states.at(-1).transport === 'poll' || server.requests.length === asked)
})

each('ids that went back are a gap, and not silence', async (server, live) => {
  const a = keep(live, '/a')
  await until(() => server.streams.size)
  for (let n = 1; n <= 5; n++) server.publish('/a', n)
  await until(() => a.values.at(-1) === 5)
  server.restart('5f3a09c1')
  server.publish('/a', 'less')
  await until(() => a.values.at(-1) === 'less')
  assert.deepEqual(a.gaps.map(({ reason }) => reason), ['cursor_ahead'])
})

each('after a gap for memory the values come', async (server, live) => {
  const all = keep(live, '/*')
  await until(() => server.streams.size)
  server.publish('/a', 1)
  server.publish('/b', 2)
  await until(() => all.values.length === 2)
  // The server is short of memory while the client is away: it sends values, and no history.
  server.isShort = true
  server.fault = () => 'refuse'
  server.cut()
  for (let n = 3; n <= 5; n++) server.publish('/b', n)
  await until(() => all.states.at(-1).state === 'waiting')
  server.fault = () => undefined
  await until(() => all.values.at(-1) === 5)
  assert.deepEqual(all.values, [1, 2, 1, 5])
  assert.deepEqual(all.gaps.map(({ reason }) => reason), ['memory_pressure'])
})

each('what comes again is not told again, deleted or not', async (server, live, transport) => {
  if (transport === 'poll') return
  const q = keep(live, '/q/*')
  await until(() => server.streams.size)
  const [stream] = server.streams
  const value = (topic, n) => ({ topic, id: server.id(n), type: 'application/json', data: n })
  for (const item of [
    value('/q/a', 1), value('/q/a', 1), { topic: '/q/a', id: server.id(4), deleted: true },
    value('/q/a', 1), value('/q/a', 3), value('/q/b', 5), value('/q/a', 6), value('/q/b', 5),
  ]) stream.give(item)
  await until(() => q.values.at(-1) === 6)
  await quiet()
  assert.deepEqual([q.values, q.deleted.length], [[1, 5, 6], 1])
})

test('WebSocket: a cursor does not go back', async () => {
  const server = await serve()
  const q = keep(open(server, { transport: 'websocket' }), '/q/*')
  await until(() => server.commands.length === 1)
  await quiet()
  server.seq = 9n
  const [stream] = server.streams
  for (const [topic, n] of [['/q/a', 5], ['/q/b', 3]]) {
    stream.give({ topic, id: server.id(n), type: 'application/json', data: n })
  }
  await until(() => q.values.length === 2)
  server.commands.length = 0
  server.cut()
  await until(() => server.commands.length)
  assert.equal(server.commands[0].since, server.id(5))
})

test('a stream that makes no sense is closed, and another one opened', async () => {
  const server = await serve()
  const a = keep(open(server), '/a')
  await until(() => server.streams.size)
  const [broken] = server.streams
  broken.write('data: {"topic":\n\n')
  await until(() => a.states.some(({ state }) => state === 'waiting'))
  await until(() => a.states.at(-1).state === 'open')
  await until(() => server.streams.size === 1 && !server.streams.has(broken))
})

each('numbers beyond 2 ** 53 keep their order', async (server, live) => {
  server.seq = 2n ** 53n - 2n
  const a = keep(live, '/a')
  await until(() => server.streams.size)
  for (let n = 1; n <= 6; n++) server.publish('/a', n)
  await until(() => a.values.at(-1) === 6)
  server.cut()
  server.publish('/a', 7)
  await until(() => a.values.at(-1) === 7)
  assert.deepEqual(a.values, [1, 2, 3, 4, 5, 6, 7])
})

each('a stopped watch hears nothing; the last one ends the connection', async (server, live) => {
  const a = keep(live, '/a')
  const twin = keep(live, '/a')
  const b = keep(live, '/b')
  await until(() => server.streams.size)
  server.publish('/a', 1)
  await until(() => a.values.length && twin.values.length)
  a.stop()
  a.stop()
  server.publish('/a', 2)
  await until(() => twin.values.length === 2)
  assert.deepEqual(a.values, [1])
  twin.stop()
  await until(() => {
    const last = server.commands.at(-1) ?? { unsubscribe: server.requests.at(-1).topics }
    return last.unsubscribe?.[0] === (server.commands.length ? '/a' : '/b')
  })
  b.stop()
  await until(() => !server.streams.size)
  const again = keep(live, '/a')
  await until(() => again.values.length)
  assert.deepEqual(again.values, [2])
  live.close()
  await until(() => !server.streams.size)
  assert.equal(again.states.at(-1).state, 'closed')
})

each('mode and since are asked for', async (server, live, transport) => {
  const mode = 'latest'
  const a = keep(open(server, { transport, mode, since: server.id(0n) }), '/a')
  await until(() => a.states.at(-1)?.state === 'open')
  const [{ url, mode: asked, since = server.commands[0].since }] = server.requests
  assert.deepEqual([asked ?? new URL(url).searchParams.get('mode'), since], [mode, server.id(0n)])
})

// Only jitter makes fractions.
const pausesOf = (all) => all.filter((ms) => ms > 900 && !Number.isInteger(ms))

/** Each pause is between half of the longest that is allowed there and all of it. */
function jittered(pauses, most) {
  most.forEach((ms, i) => assert.ok(pauses[i] > ms / 2 - 1 && pauses[i] <= ms, `${pauses}`))
  assert.ok(most.length < 2 || most.some((ms, i) => pauses[i] !== ms), 'jitter')
}

test('while the server is away no wait is longer than four seconds', async () => {
  const server = await serve()
  server.fault = () => 'refuse'
  const a = keep(open(server, { transport: 'sse' }), '/a')
  await until(() => server.requests.length === 7)
  jittered(pausesOf(waits), [2_000, 4_000, 4_000, 4_000, 4_000, 4_000])
  assert.equal(a.states.at(-1).reason, '503 Overloaded.\n')
  server.fault = () => undefined
  await until(() => a.states.at(-1).state === 'open')
  await sleep(120) // A connection that lasted is no failure.
  waits.length = 0
  server.cut()
  await until(() => a.states.at(-1).state === 'waiting')
  jittered(pausesOf(waits), [2_417]) // As the server has said.
})

test('a server that asks for longer waits gets them', async () => {
  const server = await serve()
  server.retry_ms = 9_000
  const a = keep(open(server, { transport: 'sse' }), '/a')
  await until(() => a.states.at(-1)?.state === 'open')
  server.fault = () => 'refuse'
  waits.length = 0
  server.cut()
  await until(() => pausesOf(waits).length === 3)
  jittered(pausesOf(waits), [9_000, 9_000, 9_000])
})

test('an overloaded server sets the longest wait by Retry-After', async () => {
  const server = await serve()
  server.retryAfter_s = 10
  server.fault = () => 'refuse'
  keep(open(server, { transport: 'poll' }), '/a')
  await until(() => pausesOf(waits).length === 5)
  jittered(pausesOf(waits), [2_000, 4_000, 8_000, 10_000, 10_000])
})

test('after a refusal waits grow to thirty seconds', async () => {
  const server = await serve()
  server.tokens = new Set(['good'])
  keep(open(server, { transport: 'sse', token: 'bad' }), '/a')
  await until(() => pausesOf(waits).length === 6)
  jittered(pausesOf(waits), [2_000, 4_000, 8_000, 16_000, 30_000, 30_000])
})

test('a deferred reader is not open, and comes back when it is told to', async () => {
  const server = await serve()
  server.fault = () => 'defer'
  const a = keep(open(server), '/a')
  await until(() => server.requests.length === 4)
  assert.ok(a.states.every(({ state }) => state !== 'open'), JSON.stringify(a.states))
  assert.equal(a.states.at(-1).reason, 'Stentor is away.')
  assert.ok(server.requests.every(({ kind }) => kind === 'sse'), 'streams do work here')
  jittered(pausesOf(waits), [7_000, 7_000, 7_000])
  server.publish('/a', 1)
  server.fault = () => undefined
  await until(() => a.values.length)
  assert.equal(a.states.at(-1).state, 'open')
})

for (const fault of ['hold', 'buffer']) {
  test(`auto: a proxy that keeps the stream to itself (${fault}) means long-poll`, async () => {
    const server = await serve()
    server.fault = ({ kind }) => (kind === 'sse' ? fault : undefined)
    const a = keep(open(server), '/a')
    server.publish('/a', 1)
    await until(() => a.values.length)
    const kinds = () => server.requests.map(({ kind }) => kind)
    assert.deepEqual(kinds().slice(0, 2), ['sse', 'poll'])
    assert.equal(a.states.at(-1).transport, 'poll')
    server.publish('/a', 2)
    await until(() => a.values.length === 2)
    assert.equal(kinds().filter((kind) => kind === 'sse').length, 1, 'and it stays with that')
  })
}

test('auto: streams that are refused three times mean long-poll, until that fails', async () => {
  const server = await serve()
  server.fault = ({ kind }) => (kind === 'sse' ? 'refuse' : undefined)
  const a = keep(open(server), '/a')
  await until(() => a.states.at(-1)?.state === 'open')
  const kinds = () => server.requests.map(({ kind }) => kind)
  assert.deepEqual(kinds().slice(0, 4), ['sse', 'sse', 'sse', 'poll'])
  server.fault = () => undefined
  await until(() => server.streams.size)
  server.cut()
  await until(() => a.states.at(-1).transport === 'sse' && a.states.at(-1).state === 'open')
  assert.equal(kinds().at(-1), 'sse')
})

test('auto: a server that was away is streamed from when it is back', async () => {
  const server = await serve()
  const a = keep(open(server), '/a')
  await until(() => a.states.at(-1)?.state === 'open')
  server.fault = () => 'refuse'
  server.cut()
  await until(() => server.requests.length > 6)
  assert.ok(server.requests.every(({ kind }) => kind === 'sse'), 'streams do work here')
})

test('a stream may be silent where there are no heartbeats', async () => {
  const server = await serve()
  server.heartbeat_s = 0
  const a = keep(open(server), '/a')
  await until(() => a.states.at(-1)?.state === 'open')
  await sleep(700)
  assert.equal(server.requests.length, 1)
})

test('a stream split at every byte is the same stream', async () => {
  const server = await serve()
  const body = new TextEncoder().encode(
    'retry: 99\nid: 5f3a09c1-1\ndata: {"topic":"/a","id":"5f3a09c1-1",\n' +
    'data: "type":"text/plain","event":"ß","data":"雪🎉"}\n\n:\n\n' +
    'event: stentor\ndata: {"gap":{"reason":"new","resume":"history"}}\n\n' +
    'event: stentor\ndata: {"topic":"/a","id":"5f3a09c1-2","deleted":true}\n\n',
  )
  const real = globalThis.fetch
  const serveBytes = (sizes) => {
    globalThis.fetch = async () => {
      const chunks = []
      for (let at = 0; at < body.length; at += sizes) chunks.push(body.slice(at, at + sizes))
      return new Response(new ReadableStream({
        pull: (controller) => {
          if (chunks.length) controller.enqueue(chunks.shift())
        },
      }), { headers: { 'Content-Type': 'text/event-stream' } })
    }
  }
  try {
    for (const size of [1, 2, 3, 7, 64, body.length]) {
      serveBytes(size)
      const a = keep(open(server, { transport: 'sse' }), '/a')
      await until(() => a.deleted.length)
      assert.deepEqual(a.values, ['雪🎉'])
      assert.equal(a.messages[0].event, 'ß')
      assert.deepEqual(a.gaps, [{ reason: 'new', resume: 'history' }])
    }
  } finally {
    globalThis.fetch = real
  }
})

test('WebSocket: topics come and go without a new connection', async () => {
  const server = await serve()
  const live = open(server, { transport: 'websocket' })
  const a = keep(live, '/a')
  await until(() => server.commands.length === 1)
  const b = keep(live, '/b')
  keep(live, '/c')
  await until(() => server.commands.length === 2)
  b.stop()
  await until(() => server.commands.length === 3)
  assert.deepEqual(server.commands, [
    { id: 1, subscribe: ['/a'] }, { id: 2, subscribe: ['/b', '/c'] }, { id: 3, unsubscribe: ['/b'] },
  ])
  const [{ url, protocol }] = server.requests
  assert.equal(url, `${server.url.replace('http', 'ws')}/-/events`)
  assert.equal(protocol, 'stentor.v1')
  assert.equal(server.requests.length, 1)
  assert.equal(a.states.at(-1).transport, 'websocket')
})

test('WebSocket: a pattern has the values that a name had before, and none twice', async () => {
  const server = await serve()
  const live = open(server, { transport: 'websocket' })
  server.publish('/q/a', 1)
  server.publish('/q/b', 2)
  const a = keep(live, '/q/a')
  await until(() => a.values.length === 1)
  const q = keep(live, '/q/*')
  await until(() => q.values.length === 2)
  await quiet()
  server.publish('/q/a', 3)
  await until(() => q.values.length === 3)
  assert.deepEqual([a.values, q.values], [[1, 3], [1, 2, 3]])
  const b = keep(live, '/q/b')
  await until(() => b.values.length === 1)
  await quiet()
  assert.deepEqual([q.values, b.values], [[1, 2, 3], [2]])
})

test('WebSocket: each topic is continued at its own cursor, those without one last', async () => {
  const server = await serve()
  const live = open(server, { transport: 'websocket' })
  for (const topic of ['/none', '/a', '/q/*']) keep(live, topic)
  server.seq = 8n // Numbers are compared, and not their digits.
  await until(() => server.commands.length)
  await quiet()
  const first = server.publish('/a', 1)
  const second = server.publish('/q/x', 1)
  await quiet()
  // A topic that the line has no time for has no cursor yet.
  atCommand(server, '/late', () => server.cut())
  keep(live, '/late')
  await until(() => server.commands.length > 2)
  await quiet()
  server.commands.splice(0, 2)
  assert.deepEqual(server.commands, [
    { id: 1, subscribe: ['/none'], since: server.id(8n) }, { id: 2, subscribe: ['/a'], since: first },
    { id: 3, subscribe: ['/q/*'], since: second }, { id: 4, subscribe: ['/late'] },
  ])
})

/** At the command that subscribes to `topic`, `then` is done, before it is obeyed. */
function atCommand(server, topic, then) {
  server.commands.push = function (command) {
    Array.prototype.push.call(this, command)
    if (!command.subscribe?.includes(topic)) return
    delete server.commands.push
    then()
  }
}

/** A server with an old value, and a client that reads another topic already. */
async function readBeside() {
  const server = await serve()
  const live = open(server, { transport: 'websocket' })
  server.publish('/s/x', 'old')
  server.publish('/q/a', 1)
  const a = keep(live, '/q/a')
  await until(() => a.values.length === 1)
  return { server, live, a }
}

test('WebSocket: who joins where others read has all or nothing when the line breaks', async () => {
  const { server, live, a } = await readBeside()
  atCommand(server, '/**', () => {
    server.publish('/q/a', 2)
    setImmediate(() => server.cut())
  })
  const all = keep(live, '/**')
  await until(() => !server.streams.size)
  // Who read it before goes, so nobody's cursor brings what came meanwhile.
  a.stop()
  server.publish('/q/a', 3)
  server.publish('/q/a', 4)
  await until(() => all.values.includes(4) && all.values.includes('old'))
  const [first, ...rest] = all.values.filter(Number.isInteger)
  assert.deepEqual(rest, [1, 2, 3, 4].filter((n) => n > first), `${all.values}`)
})

test('WebSocket: what others are sent meanwhile hides nothing that is older', async () => {
  const { server, live } = await readBeside()
  atCommand(server, '/**', () => server.delete('/q/a'))
  const all = keep(live, '/**')
  await until(() => all.values.includes('old'))
})

test('WebSocket: who joins has nothing of a life that ends meanwhile', async () => {
  const server = await serve()
  const live = open(server, { transport: 'websocket' })
  const a = keep(live, '/q/a')
  await until(() => server.streams.size)
  await quiet()
  atCommand(server, '/q/*', () => {
    server.publish('/q/a', 'old')
    const [stream] = server.streams
    stream.give({ gap: { reason: 'new', since: server.id(), resume: 'values' } })
    server.topics.clear()
    server.epoch = '00000001'
    server.publish('/q/a', 'new')
  })
  const q = keep(live, '/q/*')
  await until(() => q.values.length)
  assert.deepEqual([a.values, q.values], [['old', 'new'], ['new']])
})

test('WebSocket: whose history is due is not led on by what others are sent', async () => {
  const server = await serve()
  server.seq = 8n
  const live = open(server, { transport: 'websocket' })
  const [q, a] = [keep(live, '/q/*'), keep(live, '/*/a')]
  await until(() => server.streams.size)
  await quiet()
  server.publish('/s/a', 0)
  server.publish('/q/x', 0)
  await until(() => a.values.length && q.values.length)
  server.cut()
  await until(() => !server.streams.size)
  server.publish('/s/a', 1)
  server.publish('/s/a', 2)
  server.publish('/q/a', 3)
  // The older cursor comes first: of `/q/*` or of `/*/a`, each brings the other something newer.
  let subscribed = 0
  server.commands.push = function (command) {
    Array.prototype.push.call(this, command)
    if (command.subscribe && ++subscribed === 2) server.cut()
  }
  await until(() => a.values.includes(3) && q.values.includes(3))
  await quiet()
  assert.deepEqual([a.values, q.values], [[0, 1, 2, 3], [0, 3]])
})

test('WebSocket: one that never opens is given up, and an error is told', async () => {
  const server = await serve()
  server.fault = () => 'hold'
  const a = keep(open(server, { transport: 'websocket' }), '/a')
  await until(() => a.states.some(({ state }) => state === 'waiting'))
  server.fault = () => undefined
  await until(() => server.streams.size)
  const [stream] = server.streams
  stream.give({ error: { code: 'command_invalid', status: 400, detail: 'That is no command.' } })
  await until(() => a.states.some(({ reason }) => reason === 'That is no command.'))
  assert.ok(a.states.some(({ code }) => code === 'command_invalid'))
})

test('long-poll: it asks once without waiting, then holds for 25 seconds', async () => {
  const server = await serve()
  const a = keep(open(server, { transport: 'poll' }), '/a')
  await until(() => server.requests.length === 2)
  assert.deepEqual(server.requests.map(({ wait }) => wait), ['0', '25'])
  assert.equal(a.states.at(-1).state, 'open')
  server.publish('/a', 1)
  await until(() => a.values.length)
  await until(() => server.requests.at(-1).since === server.id())
})

test('the shared connection needs a page; a base may have a path', async () => {
  const server = await serve()
  assert.throws(() => watch('/a', () => {}), /^TypeError: No address: ''.* connect\('http:/)
  for (const bad of ['localhost:80', '127.0.0.1:80', 'file:///a']) {
    assert.throws(() => connect(bad), { name: 'TypeError', message: new RegExp(`'${bad}'`) })
  }
  const a = keep(closing(connect(`${server.url}/below/`, { transport: 'sse' })), '/a')
  await until(() => a.states.at(-1)?.reason?.startsWith('404'))
  globalThis.location = { href: `${server.url}/some/page?x#y` }
  try {
    const values = []
    const stops = ['/a', '/b'].map((topic) => watch(topic, (value) => values.push(value)))
    server.publish('/a', 1)
    server.publish('/b', 2)
    await until(() => values.length === 2)
    assert.equal(server.streams.size, 1)
    stops.forEach((stop) => stop())
    await until(() => !server.streams.size)
  } finally {
    delete globalThis.location
  }
})

test('without a WebSocket only that transport is refused, and in a sentence', async () => {
  const server = await serve()
  delete globalThis.WebSocket
  assert.throws(() => open(server, { transport: 'websocket' }), /no WebSocket here .*another/)
  server.publish('/a', 1)
  for (const transport of ['auto', 'sse', 'poll']) {
    const a = keep(open(server, { transport }), '/a')
    await until(() => a.values.length === 1)
  }
})

test('a callback that throws is reported, and stops nobody else', async () => {
  const server = await serve()
  const reported = []
  const { error: real } = console
  console.error = (error) => reported.push(error.message)
  try {
    const live = open(server)
    live.watch('/a', (value) => { throw new Error(`mine ${value}`) })
    live.watch('/a', async (value) => { throw new Error(`later ${value}`) }, {
      onState: () => { throw new Error('state') },
    })
    const a = keep(live, '/a')
    server.publish('/a', 1)
    await until(() => a.values.length === 1)
    server.publish('/a', 2)
    await until(() => a.values.length === 2)
    await quiet()
    const values = reported.filter((message) => message !== 'state')
    assert.deepEqual(values, ['mine 1', 'later 1', 'mine 2', 'later 2'])
    assert.equal(server.requests.length, 1)
  } finally {
    console.error = real
  }
})

test('a wrong topic fails alone, with a TypeError', async () => {
  const server = await serve()
  const live = open(server)
  const a = keep(live, '/a')
  const wrong = [
    '', 'a', '/', '/a/', '//a', '/a//b', '/.', '/a/..', '/-/x', '/.well-known/x', '/a\nb', '/\x85',
    '/\ud83d', `/${'é'.repeat(256)}`, '/**/a', '/*/*/*', `${'/a'.repeat(32)}/*`, undefined, null,
    5, ['/a'], '/a*', '/***',
  ]
  for (const topic of wrong) assert.throws(() => live.watch(topic, () => {}), TypeError, `${topic}`)
  const right = [
    '/é🎉', '/a.b', '/...', '/a/-/b', `/${'é'.repeat(255)}`, '/*/*', '/**',
    `${'/a'.repeat(31)}/*`, '/a'.repeat(200),
  ]
  for (const topic of right) keep(live, topic)
  server.publish('/a', 1)
  await until(() => a.values.length === 1)
  assert.deepEqual(server.requests.at(-1).topics, ['/a', ...right])
})

for (const [name, token] of [
  ['hangs', () => new Promise(() => {})],
  ['throws', () => { throw new Error('no token') }],
  ['rejects', async () => { throw new Error('no token') }],
]) {
  each(`a token function that ${name} stops only private topics`, async (server, _, transport) => {
    const { error: real } = console
    console.error = () => {}
    try {
      let calls = 0
      const a = keep(open(server, { transport, token: () => { calls += 1; return token() } }), '/a')
      server.publish('/a', 1)
      await until(() => a.values.length === 1)
      await until(() => calls === 2, 'it is called again')
      server.publish('/a', 2)
      await until(() => a.values.length === 2)
    } finally {
      console.error = real
    }
  })
}

each('a token that comes late begins a new connection', async (server, _, transport) => {
  let give
  const token = () => new Promise((resolve) => { give = resolve })
  const a = keep(open(server, { transport, token }), '/a')
  await until(() => a.states.at(-1)?.state === 'open')
  await quiet()
  const asked = server.requests.length
  give('late')
  await until(() => server.requests.length > asked)
  const { token: sent, protocol } = server.requests.at(-1)
  assert.equal(sent ?? protocol[1], transport === 'websocket' ? 'stentor.token.late' : 'late')
})

test('a fresh token is asked for when the one before has ended, and nothing is missed', async () => {
  for (const transport of TRANSPORTS) {
    const server = await serve()
    server.tokens = new Set(['t1'])
    let made = 0
    const token = async () => `t${++made}`
    const live = open(server, { transport, token })
    const a = keep(live, '/a')
    server.publish('/a', 1)
    await until(() => a.values.at(-1) === 1)
    server.publish('/a', 2)
    server.expire(['t2'])
    server.publish('/a', 3)
    await until(() => a.values.at(-1) === 3)
    assert.deepEqual(a.values, [1, 2, 3], transport)
    assert.equal(made, 2, transport)
    // One that was never good is not asked for in a circle.
    server.expire(['none'])
    await until(() => a.states.at(-1).state === 'waiting')
    assert.ok(made <= 4, `${transport}: ${made}`)
    live.close()
  }
})

each('what the token does not cover is told', async (server, live, transport) => {
  if (transport === 'poll') return
  const told = []
  const a = keep(live, '/a', { onAccessLimited: (what) => told.push(what) })
  server.publish('/a', 1)
  await until(() => a.values.length === 1)
  const access = { denied: ['/b'], partial: ['/c/*'] }
  const [stream] = server.streams
  stream.give({ access })
  await until(() => told.length === 1)
  assert.deepEqual(told[0], access)
})

each('unknown notices and members are ignored', async (server, live, transport) => {
  if (transport === 'poll') return
  const a = keep(live, '/a')
  await until(() => server.streams.size)
  const [stream] = server.streams
  stream.give({ weather: { reason: 'rain' } })
  stream.give({ gap: { reason: 'rain', resume: 'live', until: 'noon' }, more: 1 })
  server.publish('/a', 1)
  await until(() => a.values.length)
  assert.deepEqual(a.gaps.map(({ reason }) => reason), ['rain'])
  assert.equal(a.states.at(-1).state, 'open')
})

const PATTERNS = { code: 'patterns_disabled', status: 403, detail: 'No patterns here.' }
const INVALID = { code: 'topic_invalid', status: 400, detail: 'topic "/c": No.' }
const LIMIT = { code: 'subscription_limit', status: 400, detail: 'At most 2.' }
for (const [problem, isRefused, left] of [
  [PATTERNS, (topics) => topics.some((topic) => topic.includes('*')), ['/a', '/c']],
  [INVALID, (topics) => topics.includes('/c'), ['/a', '/b/*']],
  [LIMIT, (topics) => topics.length > 2, ['/a', '/b/*']],
]) {
  each(`${problem.code} stops only what it names`, async (server, live, transport) => {
    server.refusal = (topics) => isRefused(topics) && problem
    const refused = []
    const onRefused = (what) => refused.push(what)
    const kept = ['/a', '/b/*', '/c'].map((topic) => keep(live, topic, { onRefused }))
    const isLast = (topics) => topics?.length === 2
    await until(() => isLast(server.commands.at(-1)?.subscribe ?? server.requests.at(-1)?.topics))
    for (const topic of ['/a', '/b/x', '/c']) server.publish(topic, topic)
    await until(() => kept[0].values.length)
    await quiet()
    const topics = ['/a', '/b/*', '/c']
    assert.deepEqual(topics.filter((_, i) => kept[i].values.length), left)
    const { code, detail: reason } = problem
    const topic = topics.find((topic) => !left.includes(topic))
    assert.deepEqual(refused, [{ topic, code, reason }])
    assert.equal(kept[0].states.at(-1).state, 'open')
    // The server is not asked again for a second watch, which is told, too.
    keep(live, topic, { onRefused })
    await quiet()
    assert.equal(refused.length, 2)
    if (transport !== 'websocket') return
    assert.equal(server.requests.length, 1)
  })
}

each('a refused topic does not keep others from catching up', async (server, live, transport) => {
  server.refusal = (topics) => topics.includes('/c') && INVALID
  server.publish('/b', 'old')
  const a = keep(live, '/a')
  server.publish('/a', 1)
  await until(() => a.values.length)
  const refused = []
  const asked = server.asked()
  const b = keep(live, '/b')
  keep(live, '/c', { onRefused: (what) => refused.push(what) })
  await until(() => b.values.length)
  server.publish('/a', 2)
  await until(() => a.values.length === 2)
  await quiet()
  assert.equal(refused.length, 1)
  if (transport !== 'poll') assert.ok(server.asked() - asked < 4, `${server.asked() - asked}`)
})

each('where all is refused the connection waits, with the code', async (server, live) => {
  server.refusal = () => PATTERNS
  const a = keep(live, '/a/*')
  await until(() => a.states.at(-1)?.state === 'waiting')
  const { reason, code } = a.states.at(-1)
  assert.deepEqual([reason, code], ['No patterns here.', 'patterns_disabled'])
})
