/** The rules of the client that hold with any server: the stand-in, and the real one. */

import assert from 'node:assert/strict'
import { connect } from '../stentor.js'
import { closing, quiet, sleep, until } from './support.js'

export const TRANSPORTS = ['sse', 'websocket', 'poll']

/** Each is a name and what is to hold with a server, a connection, and its transport. */
export const cases = []
const each = (name, body) => cases.push({ name, body })

/** A connection that is closed at the end, whatever becomes of the test. */
export const open = (server, options) => closing(connect(server.url, options))

/** Watches, and keeps what comes. */
export function keep(live, topic, handlers = {}) {
  const kept = { values: [], messages: [], gaps: [], deleted: [], states: [] }
  kept.stop = live.watch(topic, (value, message) => {
    kept.values.push(value)
    kept.messages.push(message)
  }, {
    onGap: (gap) => kept.gaps.push(gap),
    onDelete: (deletion) => kept.deleted.push(deletion),
    onState: (state) => kept.states.push(state),
    ...handlers,
  })
  return kept
}

const isOpen = ({ states }) => states.at(-1)?.state === 'open'

each('the current value comes first, then every message in order', async (server, live) => {
  await server.publish('/a', 1)
  const id = await server.publish('/a', 2)
  const a = keep(live, '/a')
  await until(() => a.values.length === 1)
  for (let n = 3; n <= 20; n++) await server.publish('/a', n)
  await until(() => a.values.at(-1) === 20)
  assert.deepEqual(a.values, Array.from({ length: 19 }, (_, i) => i + 2))
  assert.deepEqual(a.messages[0], { topic: '/a', id, type: 'application/json', data: 2 })
  assert.equal(a.states[0].state, 'connecting')
  assert.equal(a.states.at(-1).state, 'open')
})

each('values are JSON, strings and bytes', async (server, live) => {
  const table = [
    [{ a: [null, 1.5] }, 'application/json', { a: [null, 1.5] }],
    [null, 'text/json; charset=utf-8', null],
    [false, 'application/vnd.x+json', false],
    [{ base64: 'AA==' }, 'application/json', { base64: 'AA==' }],
    ['zwei\nZeilen, 雪 🎉', 'text/plain', 'zwei\nZeilen, 雪 🎉'],
    ['', 'text/plain', ''],
    [{ base64: 'AP8Q' }, 'application/octet-stream', Uint8Array.of(0, 255, 16)],
    [{ base64: '/w==' }, 'application/jsonp', Uint8Array.of(255)],
  ]
  const all = keep(live, '/t/*')
  await until(() => isOpen(all))
  for (const [i, [data, type]] of table.entries()) await server.publish(`/t/${i}`, data, { type })
  await until(() => all.values.length === table.length)
  assert.deepEqual(all.values, table.map(([, , value]) => value))
})

each('patterns are matched as the server does', async (server, live) => {
  const patterns = ['/q/a', '/q/*', '/q/**', '/**', '/*/a', '/*/*/c/**']
  const topics = ['/q', '/q/a', '/q/ab', '/q/a/b', '/x/a', '/1/2/c', '/1/2/c/d/e']
  const kept = patterns.map((pattern) => keep(live, pattern))
  for (const topic of topics) await server.publish(topic, topic)
  await until(() => kept[3].values.length === topics.length)
  await quiet()
  assert.deepEqual(kept.map(({ values }) => [...values].sort()), [
    ['/q/a'], ['/q/a', '/q/ab'], ['/q/a', '/q/a/b', '/q/ab'],
    [...topics].sort(), ['/q/a', '/x/a'], ['/1/2/c/d/e'],
  ])
})

each('a watch within a callback hears the message once', async (server, live) => {
  let inner
  keep(live, '/a')
  live.watch('/a', () => { inner ??= keep(live, '/a') })
  await server.publish('/a', 1)
  await until(() => inner?.values.length)
  await quiet()
  assert.deepEqual(inner.values, [1])
})

each('a new topic brings its older value, and costs the others nothing', async (server, live) => {
  await server.publish('/old', 'old')
  const a = keep(live, '/a')
  await until(() => isOpen(a))
  await server.publish('/a', 1)
  await until(() => a.values.length === 1)
  // The first topic continues until the server has the new list.
  const old = keep(live, '/old')
  const none = keep(live, '/none')
  for (let n = 2; n < 30; n++) {
    await server.publish('/a', n)
    await sleep(1)
  }
  await until(() => a.values.at(-1) === 29 && old.values.length)
  assert.deepEqual(a.values, Array.from({ length: 29 }, (_, i) => i + 1))
  await server.publish('/none', 'first')
  await until(() => none.values.length)
  assert.deepEqual([old.values, none.values], [['old'], ['first']])
  assert.deepEqual([a.gaps, old.gaps, none.gaps], [[], [], []])
})

each('after a broken line it goes on where it was', async (server, live) => {
  await server.publish('/quiet', 0)
  const a = keep(live, '/a')
  const q = keep(live, '/quiet')
  await until(() => q.values.length)
  for (let n = 1; n <= 10; n++) {
    await server.publish('/a', n)
    if (n % 3 === 0) server.cut()
    await sleep(n % 3 === 0 ? 5 : 1)
  }
  await until(() => a.values.at(-1) === 10)
  assert.deepEqual(a.values, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
  assert.deepEqual([q.values, a.gaps], [[0], []])
  assert.equal(a.states.at(-1).state, 'open')
})

each('what fell out of history is a gap', async (server, live) => {
  server.kept = 3
  const a = keep(live, '/short/a')
  await until(() => isOpen(a))
  const since = await server.publish('/short/a', 1)
  await until(() => a.values.length === 1)
  server.fault = () => 'refuse'
  server.cut()
  for (let n = 2; n <= 9; n++) await server.publish('/short/a', n)
  await until(() => a.states.at(-1).state === 'waiting')
  server.fault = () => undefined
  await until(() => a.values.at(-1) === 9)
  assert.deepEqual(a.values, [1, 7, 8, 9])
  assert.deepEqual(a.gaps, [{ reason: 'history_trimmed', since, resume: 'history' }])
})

each('a server that began anew is a gap, and its small numbers count', async (server, live) => {
  const a = keep(live, '/a')
  await until(() => isOpen(a))
  let since
  for (let n = 1; n <= 5; n++) since = await server.publish('/a', n)
  await until(() => a.values.at(-1) === 5)
  await server.restart('0000beef')
  await server.publish('/a', 'anew')
  await until(() => a.values.at(-1) === 'anew')
  await server.publish('/a', 'next')
  await until(() => a.values.at(-1) === 'next')
  assert.deepEqual(a.gaps, [{ reason: 'epoch_changed', since, resume: 'values' }])
  server.cut()
  await sleep(50)
  await server.publish('/a', 'last')
  await until(() => a.values.at(-1) === 'last')
  assert.deepEqual(a.values.slice(-3), ['anew', 'next', 'last'])
  assert.equal(a.gaps.length, 1, 'the cursor is of the new epoch')
})

each('deletions are told; what follows is a value again', async (server, live) => {
  const a = keep(live, '/*')
  await until(() => isOpen(a))
  await server.publish('/a', 1)
  await until(() => a.values.length)
  await server.delete('/a')
  await until(() => a.deleted.length)
  const [{ topic, id }] = a.deleted
  assert.deepEqual([topic, id === a.messages[0].id, a.deleted.length], ['/a', false, 1])
  const late = keep(live, '/*')
  await server.publish('/a', 2)
  await until(() => a.values.length === 2)
  assert.deepEqual(late.values, [2], 'a deleted value is not known any more')
})

each('a line that breaks before the first message loses none', async (server, live, transport) => {
  await server.publish('/other', 0)
  const a = keep(live, '/a')
  await until(() => isOpen(a))
  await quiet()
  server.fault = () => 'refuse'
  server.cut()
  for (let n = 1; n <= 3; n++) await server.publish('/a', n)
  await until(() => a.states.at(-1).state === 'waiting')
  server.fault = () => undefined
  await until(() => a.values.at(-1) === 3)
  assert.deepEqual([a.values, a.gaps], [[1, 2, 3], []], transport)
})

each('a gap with nothing behind it is told once', async (server, _, transport) => {
  const a = keep(open(server, { transport, since: '0badcafe-7' }), '/a')
  await until(() => a.gaps.length)
  await quiet()
  server.cut()
  await quiet()
  assert.equal(a.gaps.length, 1)
})

each('a topic that is stopped and watched again has its value again', async (server, live) => {
  const other = keep(live, '/other')
  const a = keep(live, '/a')
  await server.publish('/a', 1)
  await server.publish('/other', 1)
  await until(() => a.values.length && other.values.length)
  a.stop()
  const again = keep(live, '/a')
  await until(() => again.values.length)
  await quiet()
  assert.deepEqual([again.values, other.values], [[1], [1]])
})

each('earliest begins with all there is, once', async (server, live, transport) => {
  for (let n = 1; n <= 3; n++) await server.publish('/a', n)
  const all = open(server, { transport, since: 'earliest' })
  const a = keep(all, '/a')
  const later = keep(all, '/later')
  await until(() => a.values.length === 3)
  server.cut()
  await server.publish('/a', 4)
  await server.publish('/later', 5)
  await until(() => a.values.length === 4 && later.values.length)
  await quiet()
  assert.deepEqual([a.values, later.values], [[1, 2, 3, 4], [5]])
  assert.deepEqual([a.gaps, later.gaps], [[], []])
})

each("a cursor of the caller's is honoured, a bad one is a gap", async (server, _, transport) => {
  const ids = []
  for (let n = 1; n <= 4; n++) ids.push(await server.publish('/a', n))
  const good = keep(open(server, { transport, since: ids[1] }), '/a')
  const bad = keep(open(server, { transport, since: 'nonsense' }), '/a')
  const empty = keep(open(server, { transport, since: 'nonsense' }), '/empty')
  await until(() => good.values.length === 2 && bad.values.length === 1 && empty.gaps.length)
  const asked = server.asked()
  await quiet()
  assert.deepEqual([good.values, bad.values], [[3, 4], [4]])
  assert.deepEqual([good.gaps, bad.gaps], [[], [{ reason: 'cursor_invalid', resume: 'values' }]])
  assert.ok(server.asked() - asked < 5, 'it does not ask again and again')
})
